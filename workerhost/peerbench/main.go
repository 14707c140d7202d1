// Command peerbench measures qtop, other queues (its peers) and theoretical limits in one run on
// a private PostgreSQL server. It prints goals, and which of them were met, as Markdown. It never
// fails because of a time; it fails when a job was lost or not done.
//
//	go run . [-run regexp] [-rounds 3] [-quick] [-large] [-o file]
//
// The report has the parts 1 to 9, see sections. Each part compares contenders (measure.go) in
// new databases (bench.go). peerbench is a separate Go module, because only this command needs
// the modules of the peers.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/qtop/qtop/pgclient/embedded"
)

func main() {
	embedded.SuperviseMain()
	receiverMain()
	producerMain()
	peerHostMain()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	command, args := run, os.Args[1:]
	if len(args) > 0 && args[0] == "steady" {
		command, args = steady, args[1:]
	}
	err := command(ctx, args, os.Stdout, os.Stderr)
	stop()
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "peerbench:", err)
		code := 1
		if wrong := (usageError{}); errors.As(err, &wrong) {
			code = 2
		}
		os.Exit(code) //nolint:forbidigo // exit code of main; run has drained
	}
}

// section measures one part of the report.
type section struct {
	name string
	run  func(*bench, context.Context) part
}

func sections() []section {
	return []section{
		{"work", (*bench).workRate},
		{"latency", (*bench).wakeLatency},
		{"claim", (*bench).claimRate},
		{"produce", (*bench).produceRate},
		{"enqueue", (*bench).enqueueRate},
		{"panes", (*bench).paneTime},
		{"snapshot", (*bench).heldSnapshot},
		{"growth", (*bench).growth},
		{"deliver", (*bench).deliverRate},
	}
}

func run(ctx context.Context, args []string, out, progress io.Writer) error {
	flags := flag.NewFlagSet("peerbench", flag.ContinueOnError)
	var names []string
	for _, s := range sections() {
		names = append(names, s.name)
	}
	only := flags.String("run", "", "measure the parts whose name matches: "+strings.Join(names, ", "))
	file := flags.String("o", "", "write the result to this file too")
	b := &bench{progress: progress}
	flags.IntVar(&b.rounds, "rounds", 0, "rounds of every comparison (default 3, with -quick 1)")
	flags.BoolVar(&b.quick, "quick", false, "everything small, under a minute: shows that it works, not how fast")
	flags.BoolVar(&b.large, "large", false, "the panes also over 10 M finished and 3 M queued jobs")
	if err := parsed(flags, args); err != nil {
		return err
	}
	wanted, err := regexp.Compile(*only)
	if err != nil {
		return usageError{err.Error()}
	}
	if !slices.ContainsFunc(names, wanted.MatchString) {
		return usageError{fmt.Sprintf("-run %q is a regular expression that matches none of: %s", *only, strings.Join(names, "; "))}
	}
	if b.rounds <= 0 {
		b.rounds = b.scale(3, 1)
	}
	share, began := busyShare(ctx), time.Now()
	if err := b.start(ctx); err != nil {
		return err
	}
	r := report{header: b.header(ctx)}
	for _, s := range sections() {
		if wanted.MatchString(s.name) && ctx.Err() == nil {
			b.part = s.name
			r.parts = append(r.parts, s.run(b, ctx))
		}
	}
	r.wrong = b.wrong
	r.header = append(r.header, [2]string{"run", b.described(time.Since(began), share)})
	r.write(out)
	var errs []error
	if *file != "" {
		errs = append(errs, writeFile(*file, r))
	}
	if len(b.wrong) > 0 {
		errs = append(errs, errors.New("the results are wrong: "+strings.Join(b.wrong, "; ")))
	}
	return errors.Join(append(errs, ctx.Err(), b.stop())...)
}

// parsed parses the arguments. A wrong one is a usageError.
func parsed(flags *flag.FlagSet, args []string) error {
	err := flags.Parse(args)
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		return usageError{err.Error()}
	}
	return err
}

func writeFile(name string, r report) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	r.write(f)
	return f.Close()
}
