// Command qtop is the terminal operations console for queues that live in
// PostgreSQL, their worker host, and a headless verb for every action.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/qtop/qtop/pgclient/embedded"
	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/pgclient/queue/secrecy"
	"github.com/qtop/qtop/workerhost/handler"
)

// exitPanic is the exit code after a panic, as the Go runtime has it.
const exitPanic = 2

func main() {
	outliveReaders()
	actAsInit()
	startQuickly()
	embedded.SuperviseMain()
	ctx, stop := signals(context.Background())
	code := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// outliveReaders makes a write to a pipe that nobody reads any more fail, also on standard output and
// standard error, where SIGPIPE would end the process: a host without its log goes on, and a verb says
// that its answer was cut off. Nobody reads the channel. The signal is not ignored, because the
// commands of handlers would inherit that.
func outliveReaders() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) }

// startQuickly makes the garbage collector wait for a heap of 16 MiB instead of
// 4 in the first two seconds: two collections during the start took a quarter of
// the processor time to the console's first frame. A GOGC in the environment is kept.
func startQuickly() {
	if os.Getenv("GOGC") != "" {
		return
	}
	usual := debug.SetGCPercent(400)
	time.AfterFunc(2*time.Second, func() { debug.SetGCPercent(usual) })
}

// signals returns a context that ends with the first signal (SIGINT, SIGTERM
// or SIGHUP), so that everything drains; the cause of the context has the
// signal's name. A second signal ends the process at once, unless it comes within
// sameStop: the first has then reached the process twice, from systemd and a parent,
// or from a terminal and a parent. A SIGHUP that was
// ignored when the process began, for example by nohup, stays ignored; a verb
// can ask for SIGHUPs with the function hangups.
func signals(parent context.Context) (context.Context, func()) {
	heard := &hangup{}
	ctx, cancel := context.WithCancelCause(context.WithValue(parent, hangupKey{}, heard))
	c := make(chan os.Signal, 2)
	wanted := []os.Signal{syscall.SIGTERM, syscall.SIGINT}
	if !signal.Ignored(syscall.SIGHUP) {
		wanted = append(wanted, syscall.SIGHUP)
	}
	signal.Notify(c, wanted...)
	go func() {
		for asked := (time.Time{}); ; {
			sig, open := <-c
			switch {
			case !open:
				return
			case sig == syscall.SIGHUP && heard.tell():
			case !asked.IsZero() && time.Since(asked) < sameStop:
			case !asked.IsZero():
				handler.KillCommands()
				os.Exit(130)
			default:
				asked = time.Now()
				cancel(errors.New(signalNames()[sig]))
			}
		}
	}()
	return ctx, func() { signal.Stop(c); close(c); cancel(nil) }
}

// sameStop is how long after a signal another one is the same request to stop.
const sameStop = 250 * time.Millisecond

func signalNames() map[os.Signal]string {
	return map[os.Signal]string{syscall.SIGTERM: "SIGTERM", syscall.SIGINT: "SIGINT", syscall.SIGHUP: "SIGHUP"}
}

// run is the whole program except what concerns the process (signals, exit).
// Errors, warnings and panics are printed with secrets masked.
func run(ctx context.Context, args []string, in io.Reader, out, errs io.Writer) (code int) {
	secrecy.Learn(os.Environ())
	for _, arg := range args {
		secrecy.LearnValue(arg)
	}
	a := &app{in: in, args: args}
	a.lines.w = errs
	a.ascii.Store(asciiAtFirst(args))
	out, errs = asciiWriter{W: out, on: a.printsASCII}, secrecy.Writer{W: asciiWriter{W: &a.lines, on: a.saysASCII}}
	defer func() {
		if p := recover(); p != nil {
			fmt.Fprintf(errs, "qtop: panic: %s\n%s", queue.Clean(fmt.Sprint(p)), debug.Stack())
			code = exitPanic
		}
		a.lines.end(flushWithin)
		if a.finished != nil {
			a.finished()
		}
	}()
	answer := &answered{Writer: out}
	a.out, a.errs = answer, errs
	root := commandLine(a)
	hideSettings(root, args)
	root.SetArgs(args)
	root.SetIn(in)
	root.SetOut(answer)
	root.SetErr(errs)
	err := a.afterSignal(ctx, root.ExecuteContext(ctx))
	code = a.exit(err)
	if answer.err != nil && !errors.Is(err, answer.err) {
		a.printError(*queue.NewError(queue.KindFailed, "the answer was cut off: "+answer.err.Error(), "standard output",
			"the verb has done its work; give it somewhere to write and ask again"))
		code = max(code, 1)
	}
	return code
}
