// Command soak runs qtop for an hour under a realistic load, and reports which figures grow. It
// starts a PostgreSQL server, two hosts and a console (processes of the built binary), and
// produces jobs of one kind, each an HTTP request, and signed webhooks. After each sixth of the
// duration one host is killed and started again with the same host id. Each sample is a line of
// JSON in samples.jsonl. At the end, a ledger outside of qtop is compared with the database.
//
//	go run ./workerhost/soak [-qtop ./qtop] [-duration 1h] [-jobs 200] [-webhooks 50] [-dir soak-out]
//	go run ./workerhost/soak -read soak-out     the report of the samples so far
//
// The soak fails when work was lost, or was done twice although no host was killed in between. If
// the soak lasts for at least judgedFrom, it also fails when a figure grows that should not: see
// judge.go for the criterion, and growers.go for the figures that grow by design.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/qtop/qtop/pgclient/embedded"
)

func main() {
	embedded.SuperviseMain()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		os.Exit(1) //nolint:forbidigo // exit code of main; run has stopped all processes that it started
	}
}

// options are the options of the command line.
type options struct {
	qtop           string
	dir            string // for samples, the report and the logs of the hosts
	duration       time.Duration
	kill           time.Duration // interval between two kills
	every          time.Duration // interval between two samples
	jobs, webhooks int           // per second
	patience       time.Duration // longest wait for unfinished work after the producers have stopped
}

func run(ctx context.Context, args []string, out, progress io.Writer) error {
	var o options
	flags := flag.NewFlagSet("soak", flag.ContinueOnError)
	flags.StringVar(&o.qtop, "qtop", "./qtop", "the built binary")
	flags.StringVar(&o.dir, "dir", "soak-out", "where samples.jsonl, report.txt and the logs go")
	flags.DurationVar(&o.duration, "duration", time.Hour, "how long producers produce")
	flags.DurationVar(&o.kill, "kill", 0, "from one kill -9 to the next (default a sixth of the duration)")
	flags.DurationVar(&o.every, "every", 0, "from one sample to the next (default 15s, and at least 60 samples)")
	flags.IntVar(&o.jobs, "jobs", 200, "jobs a second")
	flags.IntVar(&o.webhooks, "webhooks", 50, "webhooks a second")
	flags.DurationVar(&o.patience, "patience", 10*time.Minute, "for what is left at the end: a lease of a killed host ends by itself")
	read := flags.String("read", "", "print the report of the samples in this directory, and run nothing")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *read != "" {
		return again(*read, out)
	}
	if flags.NArg() > 0 || o.duration < 10*time.Second || o.jobs < 1 || o.webhooks < 1 {
		return errors.New("a soak needs -duration of at least 10s, -jobs and -webhooks of at least 1, and no other arguments; see -help")
	}
	if o.kill <= 0 {
		o.kill = o.duration / 6
	}
	if o.every <= 0 {
		o.every = min(15*time.Second, o.duration/60)
	}
	if err := os.MkdirAll(o.dir, 0o755); err != nil {
		return err
	}
	s := &soak{options: o, progress: progress, ledger: newLedger(), began: time.Now()}
	err := errors.Join(s.run(ctx), s.stop())
	if ctx.Err() != nil {
		return errors.New("interrupted; what it measured: go run ./workerhost/soak -read " + o.dir)
	}
	if len(s.samples) == 0 {
		return err
	}
	wrong, reported := s.report(out)
	if len(wrong) > 0 {
		err = errors.Join(err, errors.New(strings.Join(wrong, "; ")))
	}
	return errors.Join(err, reported)
}

// report prints the report and writes it to report.txt; wrong lists the reasons why the soak
// fails.
func (s *soak) report(out io.Writer) (wrong []string, err error) {
	f, err := os.Create(filepath.Join(s.dir, "report.txt"))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	w := io.MultiWriter(out, f)
	fmt.Fprintf(w, "soak: %s, %d jobs and %d webhooks a second, kill -9 every %s, PostgreSQL %s\n",
		s.duration, s.jobs, s.webhooks, s.kill, s.server.Version())
	wrong = s.verdict(w)
	return append(wrong, table(w, s.samples)...), nil
}

// again prints the table for the samples in dir, of a soak that has ended or still runs.
func again(dir string, out io.Writer) error {
	samples, err := readSamples(filepath.Join(dir, "samples.jsonl"))
	if err != nil {
		return err
	}
	if len(samples) == 0 {
		return errors.New("there are no samples in " + dir + ": name the directory of a soak (-dir) that has taken some")
	}
	wrong := table(out, samples)
	if len(wrong) > 0 {
		return errors.New(strings.Join(wrong, "; "))
	}
	return nil
}
