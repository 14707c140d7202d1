package handler

// This file binds a job kind to a command. Its arguments go from the
// configuration to the kernel as they are: no shell of ours takes them apart.

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/qtop/qtop/pgclient/fileguard"
	"github.com/qtop/qtop/pgclient/queue"
)

// commandGrace is shorter than defaultGrace, so that a command that must be
// killed is not taken for a handler that hangs.
const commandGrace = 2 * time.Second

// CommandOptions may be left zero.
type CommandOptions struct {
	// Grace is the time from SIGTERM to SIGKILL, and how long what a command left
	// behind may hold on to its output; zero = 2 s. Keep it below Runner.Grace, or see
	// WithKill.
	Grace time.Duration
}

// The exit codes of sysexits.h by which a command says that trying again is of no
// use: EX_USAGE and EX_DATAERR.
const (
	exitUsage   = 64
	exitDataErr = 65
)

// runVariable names the run of a command in its environment and in that of all that
// it starts.
const runVariable = "QTOP_RUN"

// Command is a handler that runs argv, with Job.JSON as one line on its standard
// input. argv[0] is looked up in PATH now, once. It is an error when everybody may
// change the program or a file among its arguments, such as the script of a shell.
//
// Exit code 0 means succeeded, 64 and 65 (sysexits: usage, data) failed for good.
// Every other exit code N is a failed try with code EXIT_<N>; an end by a signal
// is SIGNAL_<name>, an end of the context TIMEOUT or STOPPED, and a command that
// cannot be started START_FAILED.
//
// Of its output, standard output and error together, the last 4 KiB are kept for
// the text of a failure; the rest is read and thrown away.
//
// The environment is PATH, HOME, LANG, LC_*, TZ and TMPDIR of the host, and
// QTOP_JOB_ID, QTOP_ROOT_JOB_ID (its idempotency token), QTOP_JOB_KIND, QTOP_JOB_DOMAIN, QTOP_JOB_ATTEMPT; nothing else, so
// that no password of the host gets there. On Linux QTOP_RUN names the run, for the
// host to find what it leaves behind. The working directory is the host's.
//
// A command runs in a session of its own, without terminal. When the context ends
// its process group gets SIGTERM, and SIGKILL when the grace is over. When the
// command itself has ended, what is left of its group is killed, and on Linux what
// moved to another session (setsid) too: nothing that belongs to a try outlives it,
// but for what did that and cleared its environment, or changed its user. A service
// manager's cgroup (systemd: KillMode=control-group) takes these too.
// When the host is killed (SIGKILL), Linux kills the command itself, but not the
// processes that it started; elsewhere the command goes on.
func Command(argv []string, o CommandOptions) (Handler, error) {
	if len(argv) == 0 || argv[0] == "" {
		return nil, badCommand("the command is empty", "name a program and its arguments")
	}
	if slices.ContainsFunc(argv, func(a string) bool { return strings.ContainsRune(a, 0) }) {
		return nil, badCommand("the command holds a NUL byte", "take it out: no program can be given one")
	}
	path, err := exec.LookPath(argv[0])
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil {
		why := err
		if e, ok := errors.AsType[*exec.Error](err); ok {
			why = e.Err
		}
		return nil, badCommand(fmt.Sprintf("command %q cannot be run: %v", argv[0], why), "install it, or give its whole path")
	}
	for _, f := range fileguard.Command(path, argv[1:]) {
		if f.Refuse { // whoever changes it runs what they like as this host
			return nil, badCommand("command "+strconv.Quote(argv[0])+": "+f.What, f.Do)
		}
	}
	if o.Grace <= 0 {
		o.Grace = commandGrace
	}
	return &command{path: path, argv: slices.Clone(argv), grace: o.Grace}, nil
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

// WithKill is ctx, in which commands are killed when killed ends, however much of
// their grace is left.
func WithKill(ctx, killed context.Context) context.Context {
	return context.WithValue(ctx, killKey{}, killed)
}

// Handle runs the command once.
func (c *command) Handle(ctx context.Context, job Job) error {
	line, err := job.JSON()
	if err != nil {
		return err
	}
	// The parent-death signal belongs to the thread that starts the command: it
	// must not end before the command does.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	run := newRun()
	var out tail
	var interrupted atomic.Bool
	cmd := exec.CommandContext(ctx, c.path)
	cmd.Args = c.argv
	cmd.Env = environment(os.Environ(), job)
	if run != "" {
		cmd.Env = append(cmd.Env, runVariable+"="+run)
	}
	// Through a pipe, as a file could not be shared; os/exec takes no offence at a
	// command that ends without reading it.
	cmd.Stdin = bytes.NewReader(append(line, '\n'))
	cmd.Stdout, cmd.Stderr = &out, &out // one pipe: the order is kept
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

	if err := cmd.Start(); err != nil {
		if ctx.Err() != nil {
			return Coded(endCode(ctx), errText("not started: no time was left"))
		}
		return Coded(CodeStartFailed, err)
	}
	// The error repeats the state, or is about pipes that were held too long or
	// not read: neither changes how the command ended.
	stop := context.AfterFunc(killed, func() {
		_ = signalGroup(cmd.Process.Pid, kill)
		killStrays(run, cmd.Process.Pid) // which may hold its output
	})
	_ = cmd.Wait()
	stop()
	// This cannot reach anybody else: the number is not given to a new process while
	// the group has members, and otherwise not before all other numbers had their turn.
	_ = signalGroup(cmd.Process.Pid, kill)
	killStrays(run, cmd.Process.Pid)
	return c.judge(ctx, cmd.ProcessState, interrupted.Load(), &out)
}

// judge makes the outcome. A command that was told to end has not done its work,
// whatever it exits with.
func (c *command) judge(ctx context.Context, state *os.ProcessState, interrupted bool, out *tail) error {
	said, cut := out.end()
	failed := func(code, what string) error {
		return Coded(code, errText(withOutput(what, said, cut)))
	}
	if state == nil { // not even waiting for it worked
		return failed(CodeError, "the command's end could not be learnt")
	}
	if interrupted && ctx.Err() != nil {
		code, what := endCode(ctx), "stopped by the host"
		if code == CodeTimeout {
			what = "the time was used up"
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

// environment picks from the host's variables by name: what is not known to be
// harmless stays here.
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
