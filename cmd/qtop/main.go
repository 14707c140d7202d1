// Command qtop is the terminal operations console for queues that live in
// PostgreSQL, their worker host, and a headless verb for every action.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/qtop/qtop/pgclient/embedded"
	"github.com/qtop/qtop/pgclient/queue/secrecy"
)

// exitPanic is how the runtime ends a program that panics.
const exitPanic = 2

func main() {
	embedded.SuperviseMain()
	ctx, stop := signals(context.Background())
	code := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// signals cancels the context at the first signal, so that everything drains; a
// second one aborts. A SIGHUP is the operator's connection that broke: the same.
func signals(parent context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancel(parent)
	c := make(chan os.Signal, 2)
	signal.Notify(c, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	go func() {
		for n := 0; ; n++ {
			if _, open := <-c; !open {
				return
			}
			if n > 0 {
				os.Exit(130)
			}
			cancel()
		}
	}()
	return ctx, func() { signal.Stop(c); close(c); cancel() }
}

// run is the whole program but the process around it. What it says about itself
// passes the mask, a panic too.
func run(ctx context.Context, args []string, in io.Reader, out, errs io.Writer) (code int) {
	secrecy.Learn(os.Environ())
	for _, arg := range args {
		secrecy.LearnValue(arg)
	}
	errs = secrecy.Writer{W: errs}
	defer func() {
		if p := recover(); p != nil {
			fmt.Fprintf(errs, "qtop: panic: %v\n%s", p, debug.Stack())
			code = exitPanic
		}
	}()
	a := &app{in: in, writer: writer{out: out, errs: errs}}
	root := commandLine(a)
	root.SetArgs(args)
	root.SetIn(in)
	root.SetOut(out)
	root.SetErr(errs)
	err := root.ExecuteContext(ctx)
	return a.exit(err)
}
