package main

// The command `peerbench steady`: producers fill queues, hosts work on them and a console watches
// them at the same time, in the phases of the public comparison of PostgreSQL job queues
// (github.com/hardbyte/postgresql-job-queue-benchmarking, docs/method.md).
//
//  1. A course is one phase, or several in sequence. Each contestant runs each course on a new
//     server.
//  2. A producer in a separate process inserts numbered jobs at a fixed rate. One worker host,
//     also a separate process, makes an HTTP request per job to the receiver in this process.
//  3. After a warm-up, which is not measured, the phases begin. After the last phase the producer
//     stops, and the remaining jobs are waited for, until none has finished for `-patience`: the rest
//     counts as lost. Where the queue keeps its finished jobs, a job is finished when the queue has
//     recorded that; otherwise when its handler has made its request.
//  4. A host that ends is started again after a second, as by a service manager.
//  5. The results of the course are appended to results.jsonl. If results.jsonl has all results
//     of a course, of the same build, rate and lengths, the course is not run again.

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
)

// steadyOptions are the flags of `peerbench steady`.
type steadyOptions struct {
	dir         string        // folder of results.jsonl and the logs
	rate        int           // jobs per second
	length      time.Duration // of a phase
	idleInTx    time.Duration // length of the phase idle-in-tx for qtop and River
	warmUp      time.Duration
	patience    time.Duration
	drain       time.Duration
	pgque       string // path of PgQue's SQL file
	phases      *regexp.Regexp
	contestants *regexp.Regexp
	binaries    []binary
	doc         string // path of the document into which the table is written
}

// binary is a build of qtop, with a name for the report.
type binary struct{ name, path, version string }

// usageError is a wrong command line.
type usageError struct{ why string }

func (e usageError) Error() string { return e.why }

func steady(ctx context.Context, args []string, out, progress io.Writer) error {
	o := steadyOptions{}
	flags := flag.NewFlagSet("peerbench steady", flag.ContinueOnError)
	flags.StringVar(&o.dir, "dir", "steady-out", "folder of results.jsonl and the logs")
	flags.IntVar(&o.rate, "rate", 800, "jobs per second")
	flags.DurationVar(&o.length, "length", 5*time.Minute, "length of a phase")
	flags.DurationVar(&o.idleInTx, "idle-in-tx", 30*time.Minute, "length of the phase idle-in-tx of qtop and River")
	flags.DurationVar(&o.warmUp, "warm-up", 10*time.Second, "load before the first phase, not measured")
	flags.DurationVar(&o.patience, "patience", 90*time.Second, "jobs that are left at the end are lost after this time without the end of one")
	flags.DurationVar(&o.drain, "drain", 10*time.Minute, "how long jobs that are left at the end may take at most")
	flags.StringVar(&o.pgque, "pgque", os.Getenv("PGQUE_SQL"), "PgQue's SQL file; without it PgQue is not measured (default $PGQUE_SQL)")
	flags.StringVar(&o.doc, "doc", "", "document into which the tables are written, between its markers")
	phases := flags.String("phases", "", "run the courses that have a phase whose name matches")
	contestants := flags.String("contestants", "", "run the contestants whose name matches")
	report := flags.Bool("report", false, "report what was measured before; measure nothing")
	flags.Func("qtop", "a built `binary` of qtop, or NAME=binary; give it several times to compare builds in turns", func(text string) error {
		b := binary{name: qtopName, path: text}
		if name, path, named := strings.Cut(text, "="); named {
			b = binary{name: name, path: path}
		}
		if _, err := os.Stat(b.path); err != nil {
			return err
		}
		o.binaries = append(o.binaries, b)
		return nil
	})
	if err := parsed(flags, args); err != nil {
		return err
	}
	var err, badPhases error
	o.phases, badPhases = regexp.Compile(*phases)
	o.contestants, err = regexp.Compile(*contestants)
	if err = errors.Join(err, badPhases); err != nil {
		return usageError{err.Error()}
	}
	if flags.NArg() > 0 || o.rate < 1 || o.length < time.Second || o.idleInTx < time.Second {
		return usageError{"peerbench steady needs -rate of at least 1, -length of at least 1s, and no other arguments; see -help"}
	}
	s := &steadyRun{steadyOptions: o, progress: progress, all: *report}
	if err := s.identify(); err != nil {
		return err
	}
	if err := s.matching(); err != nil {
		return err
	}
	if err := os.MkdirAll(o.dir, 0o755); err != nil {
		return err
	}
	if !*report {
		held, err := lockFolder(o.dir)
		if err != nil {
			return err
		}
		defer held.Close()
	}
	if s.results, err = readResults(s.file()); err != nil {
		return err
	}
	if !*report {
		err = s.run(ctx)
	}
	text := s.report()
	fmt.Fprint(out, text)
	if o.doc != "" && len(s.ordered()) > 0 {
		err = errors.Join(err, writeIntoDocument(o.doc, text))
	}
	return err
}

// lockFolder lets one run measure into the folder at a time: two runs would disturb each other and
// measure each course twice. The lock lasts until the file is closed or the process ends.
func lockFolder(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("another run measures into %s: wait for its end, or use -dir", dir)
		}
		return nil, fmt.Errorf("locking %s: %w", f.Name(), err)
	}
	return f, nil
}

// matching refuses names that match nothing, because then nothing would be measured.
func (s *steadyRun) matching() error {
	var phases, names []string
	for _, c := range courses() {
		for _, p := range c {
			phases = append(phases, p.name)
		}
	}
	for _, who := range s.contestantsOf() {
		names = append(names, who.name)
	}
	for _, f := range []struct {
		flag string
		re   *regexp.Regexp
		all  []string
	}{{"-phases", s.phases, phases}, {"-contestants", s.contestants, names}} {
		if !slices.ContainsFunc(f.all, f.re.MatchString) {
			return usageError{fmt.Sprintf("%s %q is a regular expression that matches none of: %s", f.flag, f.re, strings.Join(f.all, "; "))}
		}
	}
	return nil
}

// steadyRun is one run of the command.
type steadyRun struct {
	steadyOptions
	progress io.Writer
	all      bool // report all results, not only those of the present builds and options
	results  []result
	absent   map[string]error     // why contestants cannot be measured, by name
	node     map[string]*nodePeer // npm packages that are installed, by name
	seed     string               // folder of a stopped server; the server of each course is a copy

	pgqueVersion string
}

func (s *steadyRun) file() string { return filepath.Join(s.dir, "results.jsonl") }

func (s *steadyRun) say(format string, args ...any) {
	fmt.Fprintf(s.progress, "%s  "+format+"\n", append([]any{time.Now().UTC().Format(time.TimeOnly)}, args...)...)
}

// run runs each course with all contestants before the next course, so that a slow change of the
// machine's speed affects all of them. If a contestant fails, its course has no results, and the
// next run of the command runs it again.
func (s *steadyRun) run(ctx context.Context) error {
	defer s.removeInstalled()
	var failed []error
	todo := s.unmeasured()
	s.say("%d courses, at least %s", len(todo), s.least(todo).Round(time.Minute))
	for i, t := range todo {
		who, c := t.who, t.course
		if ctx.Err() == nil {
			if err := s.available(ctx, who); err != nil && ctx.Err() == nil {
				s.say("%s, %s: %v", who.name, c.name(), err)
				continue
			}
		}
		var rs []result
		var err error
		if ctx.Err() == nil {
			s.say("%d of %d: %s, %s", i+1, len(todo), who.name, c.name())
			rs, err = s.drive(ctx, who, c)
		}
		if ctx.Err() != nil {
			return fmt.Errorf("interrupted; the same command continues with %s, %s", who.name, c.name())
		}
		if err == nil {
			err = s.keep(rs)
		}
		if err != nil {
			s.say("%s, %s: %v", who.name, c.name(), err)
			failed = append(failed, fmt.Errorf("%s, %s: %w", who.name, c.name(), err))
		}
	}
	return errors.Join(failed...)
}

// turn is a course of a contestant.
type turn struct {
	who    contestant
	course course
}

// unmeasured returns the turns that have to be measured, in their order.
func (s *steadyRun) unmeasured() (todo []turn) {
	for _, c := range courses() {
		for _, who := range s.contestantsOf() {
			if c.matches(s.phases) && s.contestants.MatchString(who.name) && !s.measured(who, c) {
				todo = append(todo, turn{who, c})
			}
		}
	}
	return todo
}

// least returns the sum of the warm-ups and phases.
func (s *steadyRun) least(todo []turn) (sum time.Duration) {
	for _, t := range todo {
		sum += s.warmUp
		for _, p := range t.course {
			sum += s.planned(t.who, p)
		}
	}
	return sum
}

// measured reports whether the results have every phase of the course.
func (s *steadyRun) measured(who contestant, c course) bool {
	for _, p := range c {
		if !slices.ContainsFunc(s.results, func(r result) bool { return s.same(r, who, p) }) {
			return false
		}
	}
	return true
}

// same reports whether the result is of this phase of the contestant, in its present build and with
// the options of this run.
func (s *steadyRun) same(r result, who contestant, p phase) bool {
	return r.Contestant == who.name && r.Version == who.version && r.Phase == p.name &&
		r.Rate == s.rate && r.Planned == s.planned(who, p).Seconds()
}

// reported returns the results that the report shows, in the order of the file.
func (s *steadyRun) reported() (rs []result) {
	all := s.contestantsOf()
	for _, r := range s.results {
		if s.all || slices.ContainsFunc(all, func(who contestant) bool { return s.same(r, who, phase{name: r.Phase}) }) {
			rs = append(rs, r)
		}
	}
	return rs
}

// keep appends the results to the file.
func (s *steadyRun) keep(rs []result) error {
	f, err := os.OpenFile(s.file(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	text := []byte("\n") // ends a line that a stop had cut off
	for _, r := range rs {
		line, err := json.Marshal(r)
		if err != nil {
			return err
		}
		text = append(append(text, line...), '\n')
	}
	if _, err := f.Write(text); err != nil { // one write, so that a course is written completely or not at all
		return err
	}
	s.results = append(s.results, rs...)
	return f.Sync()
}

// readResults reads the results in the file. If a phase was measured twice, the last line counts. A
// line that was cut off, or was measured with another version of the method, is ignored.
func readResults(file string) ([]result, error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	var rs []result
	for line := range strings.Lines(string(text)) {
		var r result
		if json.Unmarshal([]byte(line), &r) == nil && r.Method == method {
			rs = append(rs, r)
		}
	}
	return rs, err
}
