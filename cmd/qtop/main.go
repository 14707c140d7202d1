// Command qtop is the terminal operations console for queues that live in
// PostgreSQL, their worker host, and a headless verb for every action.
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/qtop/qtop/pgclient/embedded"
)

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

// run is the whole program but the process around it.
func run(ctx context.Context, args []string, in io.Reader, out, errs io.Writer) int {
	a := &app{in: in, out: out, errs: errs}
	root := a.root()
	root.SetArgs(args)
	root.SetIn(in)
	root.SetOut(out)
	root.SetErr(errs)
	err := root.ExecuteContext(ctx)
	return a.exit(err)
}
