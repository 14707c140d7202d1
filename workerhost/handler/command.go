package handler

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/qtop/qtop/pgclient/fileguard"
	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/workerhost/sender"
)

// commandGrace is shorter than defaultGrace, so that a command that must be killed does not
// count as a handler that hangs.
const commandGrace = 2 * time.Second

// CommandOptions are options of Command. The zero value is valid.
type CommandOptions struct {
	// Grace is the time from SIGTERM to SIGKILL. It is also how long processes that a command
	// left running may keep its output open. 0 = 2 s. It must be less than Runner.Grace, unless
	// WithKill is used.
	Grace time.Duration
}

// The exit codes of sysexits.h that fail a job permanently: EX_USAGE and EX_DATAERR.
const (
	exitUsage   = 64
	exitDataErr = 65
)

// runVariable is the environment variable that holds the name of the run, in a command and in all
// processes that it starts.
const runVariable = "QTOP_RUN"

// Command returns a handler that runs argv and writes Job.JSON as one line to its standard input.
// The arguments reach the kernel unchanged: no shell splits them. Command looks argv[0] up in
// PATH once. It returns an error if everyone may change the program or a file among its
// arguments, such as the script of a shell.
//
// Exit code 0 means that the job succeeded; 64 and 65 (sysexits: usage, data) fail it
// permanently. Every other exit code N is a failed attempt with the code EXIT_<N>. The code is
// SIGNAL_<name> if a signal ended the command, TIMEOUT or STOPPED if the context ended, and
// START_FAILED if the command cannot be started. If it cannot be started because the host itself lacks
// file descriptors, processes or memory, or because the file system of the program has not answered for
// two seconds, the job is handed back and no attempt is counted, unless another handler called this one (Shortage).
//
// The last 4 KiB of standard output and standard error together are kept for the text of a
// failure; earlier output is discarded.
//
// The environment is PATH, HOME, LANG, LC_*, TZ and TMPDIR of the host, plus QTOP_JOB_ID,
// QTOP_ROOT_JOB_ID (the idempotency token of the job), QTOP_JOB_KIND, QTOP_JOB_DOMAIN and
// QTOP_JOB_ATTEMPT. So a command does not see a password in the host's environment. On Linux
// QTOP_RUN names the run; by this name the host finds the processes of the run. The working
// directory is that of the host.
//
// A command runs in a separate session, without a terminal. When the context ends, its process
// group gets SIGTERM, and SIGKILL when the grace time is over. When the command itself has ended,
// the other processes of its group are killed, and on Linux also its processes that moved to
// another session (setsid). So no process outlives its attempt, with two exceptions: a process
// that moved to another session and cleared its environment, and a process that changed its user.
// To find the others, the host reads /proc; if it has no file descriptor left for that, it waits for one, in
// one attempt up to two seconds in all.
// The cgroup of a service manager (systemd: KillMode=control-group) kills these too. When the
// host is killed (SIGKILL), Linux kills the command itself but not the processes that it started;
// on other systems the command continues.
func Command(argv []string, o CommandOptions) (Handler, error) {
	if len(argv) == 0 || argv[0] == "" {
		return nil, badCommand("the command is empty", "name a program and its arguments")
	}
	if slices.ContainsFunc(argv, func(a string) bool { return strings.ContainsRune(a, 0) }) {
		return nil, badCommand("the command holds a NUL byte", "take it out: no program can be given one")
	}
	type program struct {
		path     string
		findings []fileguard.Finding
	}
	p, err := fileguard.Within(func() (p program, err error) {
		if p.path, err = exec.LookPath(argv[0]); err != nil {
			return p, err
		}
		if p.path, err = filepath.Abs(p.path); err == nil {
			p.findings = fileguard.Command(p.path, argv[1:])
		}
		return p, err
	})
	if errors.Is(err, fileguard.ErrNoAnswer) {
		return nil, badCommand(fmt.Sprintf("command %q, or a file among its arguments, cannot be looked at: %v", argv[0], err), "repair that file system, or name other files")
	}
	if err != nil {
		why := err
		if e, ok := errors.AsType[*exec.Error](err); ok {
			why = e.Err
		}
		return nil, badCommand(fmt.Sprintf("command %q cannot be run: %v", argv[0], why), "install it, or give its whole path")
	}
	for _, f := range p.findings {
		if f.Refuse { // anyone who can change the file can run any code as the user of this host
			return nil, badCommand("command "+strconv.Quote(argv[0])+": "+f.What, f.Do)
		}
	}
	if o.Grace <= 0 {
		o.Grace = commandGrace
	}
	return &command{path: p.path, argv: slices.Clone(argv), grace: o.Grace}, nil
}

func badCommand(what, do string) error {
	return queue.NewError(queue.KindConfig, what, "", do)
}

type command struct {
	path  string
	argv  []string
	grace time.Duration
}

type killKey struct{}

// WithKill returns ctx with a second context: commands are killed when killed ends, even if
// their grace time is not over.
func WithKill(ctx, killed context.Context) context.Context {
	return context.WithValue(ctx, killKey{}, killed)
}

// Handle runs the command once.
func (c *command) Handle(ctx context.Context, job Job) error {
	line, err := job.JSON()
	if err != nil {
		return err
	}
	run := newRun()
	var out tail
	var interrupted atomic.Bool
	cmd := exec.CommandContext(ctx, c.path)
	cmd.Args = c.argv
	cmd.Env = environment(os.Environ(), job)
	if run != "" {
		cmd.Env = append(cmd.Env, runVariable+"="+run)
	}
	// os/exec writes this to a pipe. A command that ends without reading its input is no error.
	cmd.Stdin = bytes.NewReader(append(line, '\n'))
	cmd.Stdout, cmd.Stderr = &out, &out // one pipe for both keeps their order
	cmd.SysProcAttr = attr()
	cmd.Cancel = func() error {
		err := signalGroup(cmd.Process.Pid, terminate)
		if err == nil {
			interrupted.Store(true)
		}
		return err
	}
	cmd.WaitDelay = c.grace
	killed, _ := ctx.Value(killKey{}).(context.Context)
	if killed == nil {
		killed = context.Background()
	}

	if lack := answers(ctx, c.path); lack != nil {
		return notStarted(ctx, lack, lack)
	}
	ended, err := startCommand(cmd)
	if err != nil {
		return notStarted(ctx, err, sender.ProcessShortage(err))
	}
	defer ended()
	left := straysOf(run, begun(cmd.Process.Pid))
	// The error repeats the exit state, or means that pipes were kept open or not read. Neither
	// changes how the command ended.
	stop := context.AfterFunc(killed, func() {
		_ = signalGroup(cmd.Process.Pid, kill)
		left.kill() // processes outside the group may keep its output open
	})
	awaitEnd(cmd.Process.Pid)
	_ = cmd.Wait()
	stop()
	// SIGKILL cannot hit another process group: the kernel does not reuse the group id while the
	// group has members, and after that only when it has used all other ids.
	_ = signalGroup(cmd.Process.Pid, kill)
	left.kill()
	return c.judge(ctx, cmd.ProcessState, interrupted.Load(), &out)
}

// notStarted returns the failure of a command that could not be started. lack is what the host lacked for it, or nil.
func notStarted(ctx context.Context, err, lack error) error {
	if ctx.Err() != nil {
		return Coded(endCode(ctx), errText("the command was not started: no time was left for it"))
	}
	return &Failure{Code: CodeStartFailed, Err: err, shortage: lack}
}

// judge returns the outcome. If the host sent SIGTERM to the command, the work is not done,
// whatever the exit code.
func (c *command) judge(ctx context.Context, state *os.ProcessState, interrupted bool, out *tail) error {
	said, cut := out.end()
	failed := func(code, what string) error {
		return Coded(code, errText(withOutput(what, said, cut)))
	}
	if state == nil { // waiting for the process failed
		return failed(CodeError, "how the command ended could not be found out")
	}
	if interrupted && ctx.Err() != nil {
		code, what := endCode(ctx), "the host stopped the command"
		if code == CodeTimeout {
			what = "the command took longer than its timeout"
		}
		return failed(code, what)
	}
	if name, ok := endSignal(state); ok {
		return failed("SIGNAL_"+name, "ended by signal "+name)
	}
	switch n := state.ExitCode(); n {
	case 0:
		return nil
	case exitUsage, exitDataErr:
		return Permanent(failed("EXIT_"+strconv.Itoa(n), "exit code "+strconv.Itoa(n)))
	default:
		return failed("EXIT_"+strconv.Itoa(n), "exit code "+strconv.Itoa(n))
	}
}

// environment returns the variables of a command: a fixed list of the host's variables that are
// known to be harmless, and the variables of the job.
func environment(host []string, job Job) []string {
	var env []string
	for _, kv := range host {
		switch name, _, _ := strings.Cut(kv, "="); {
		case slices.Contains([]string{"PATH", "HOME", "LANG", "TZ", "TMPDIR"}, name), strings.HasPrefix(name, "LC_"):
			env = append(env, kv)
		}
	}
	return append(env,
		"QTOP_JOB_ID="+job.ID,
		"QTOP_ROOT_JOB_ID="+job.RootID,
		"QTOP_JOB_KIND="+job.Kind,
		"QTOP_JOB_DOMAIN="+job.Domain,
		"QTOP_JOB_ATTEMPT="+strconv.Itoa(job.Attempt),
	)
}
