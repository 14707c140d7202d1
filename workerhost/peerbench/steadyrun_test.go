package main

import (
	"context"
	"errors"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// Time in idle and iowait is not used; the time of guests is counted once.
func TestBusyShareComparesTwoReadings(t *testing.T) {
	t.Parallel()
	before := processorTimes("cpu  100 10 30 800 60 0 0 0 50 0")
	after := processorTimes("cpu  110 11 33 960 66 4 1 1 60 0")
	if before.all != 1000 || before.used != 140 {
		t.Errorf("before: %+v", before)
	}
	if share := after.since(before); math.Abs(share-20.0/186) > 1e-9 {
		t.Errorf("share %v", share)
	}
	if share := before.since(before); share != 0 {
		t.Errorf("without time between the readings: %v", share)
	}
	if now := processorTimes(procField("/proc/stat", "")); now.used <= 0 || now.all <= now.used {
		t.Errorf("this machine: %+v", now)
	}
}

// The wait for what is left goes on while jobs end, and no longer than its bound.
func TestPatienceCountsFromTheLastEnd(t *testing.T) {
	t.Parallel()
	begin := time.Unix(1000, 0)
	at := func(seconds int) time.Time { return begin.Add(time.Duration(seconds) * time.Second) }
	w := &world{steadyRun: &steadyRun{steadyOptions: steadyOptions{patience: 90 * time.Second, drain: 10 * time.Minute}}}
	expect := func(p *wait, seconds int, over, draining bool) {
		t.Helper()
		if o, d := p.over(at(seconds)); o != over || over && d != draining {
			t.Errorf("after %d s: over %v, draining %v", seconds, o, d)
		}
	}
	p := w.newWait(begin)
	p.saw(at(0), 1000, math.MaxInt)
	p.saw(at(80), 900, math.MaxInt)
	expect(p, 100, false, false)
	expect(p, 169, false, false)
	p.saw(at(120), 900, 950) // the first look at the records says nothing of progress
	p.saw(at(150), 900, 950)
	expect(p, 170, true, false)
	p.saw(at(165), 900, 949) // none started, but one ended
	expect(p, 170, false, false)
	p.saw(at(590), 3, 10)
	expect(p, 599, false, false)
	expect(p, 600, true, true)

	w.who.gone = 15 * time.Second
	p = w.newWait(begin)
	p.saw(at(0), 5, 5)
	expect(p, 14, false, false)
	expect(p, 15, true, false)
}

// What is left when the bound ends is waiting, not lost.
func TestJobsThatStillEndAreNotLost(t *testing.T) {
	t.Parallel()
	begin := time.Unix(1000, 0)
	w := &world{steadyRun: &steadyRun{}, who: contestant{name: "c", load: jobsLoad}, ledger: &steadyLedger{}}
	w.ledger.tell(0, begin.UnixNano(), true)
	sp := &span{phase: phase{name: "clean"}, begin: begin, end: begin.Add(time.Second)}
	if r := w.result(sp, 0); r.Lost != 1 || r.Waiting != 0 {
		t.Errorf("lost %d, waiting %d", r.Lost, r.Waiting)
	}
	w.draining = true
	if r := w.result(sp, 0); r.Lost != 0 || r.Waiting != 1 {
		t.Errorf("lost %d, waiting %d", r.Lost, r.Waiting)
	}
}

// A host that ends by itself is started again and counted; one that a phase kills is only started
// again.
func TestHostIsKeptAndItsEndsAreCounted(t *testing.T) {
	t.Parallel()
	begin := time.Now()
	mark := filepath.Join(t.TempDir(), "mark")
	starts := 0
	start := func() (*child, error) {
		starts++
		cmd := exec.Command("sh", "-c", `if [ -e "$0" ]; then exec sleep 600; fi; : > "$0"; exit 3`, mark)
		cmd.SysProcAttr = endWithParent()
		return startChild(cmd, cmd.Start)
	}
	k, err := keepHost(start, func(string, ...any) {}, time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	first := k.current()
	for k.current() == first {
		if pause(t.Context(), time.Millisecond) != nil {
			t.Fatal("the host was not started again")
		}
	}
	second := k.current()
	if at, err := k.kill(t.Context()); err != nil || at.Before(begin) || k.current() == second {
		t.Errorf("killed at %v, %v", at, err)
	}
	third := k.current()
	k.stop()
	<-third.done
	if starts != 3 {
		t.Errorf("started %d times", starts)
	}
	if n := k.ended(begin, time.Now()); n != 1 {
		t.Errorf("ended by itself %d times", n)
	}
	w := &world{steadyRun: &steadyRun{}, hosts: k, ledger: &steadyLedger{}}
	if r := w.result(&span{begin: begin, end: time.Now()}, 0); r.Restarts != 1 {
		t.Errorf("%d restarts in the phase", r.Restarts)
	}
	if r := w.result(&span{begin: begin.Add(-time.Second), end: begin}, 0); r.Restarts != 0 {
		t.Errorf("%d restarts in the phase before", r.Restarts)
	}
}

func TestHostThatCannotBeStartedAgain(t *testing.T) {
	t.Parallel()
	starts := 0
	k, err := keepHost(func() (*child, error) {
		if starts++; starts > 1 {
			return nil, errors.New("no host")
		}
		cmd := exec.Command("sleep", "600")
		cmd.SysProcAttr = endWithParent()
		return startChild(cmd, cmd.Start)
	}, func(string, ...any) {}, time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := k.kill(t.Context()); err == nil || err.Error() != "no host" {
		t.Errorf("%v", err)
	}
	k.stop()
}

// Flags that would measure nothing are refused before anything is written.
func TestFlagsThatMatchNothingAreRefused(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "out")
	for want, args := range map[string][]string{
		`-phases "clean,idle-in-tx" is a regular expression that matches none of: clean; idle-in-tx;`: {"-phases", "clean,idle-in-tx"},
		`-contestants "qtopp" is a regular expression that matches none of: River; graphile-worker;`:  {"-contestants", "qtopp"},
		`its command worker has no --delivery-allow-plain-http`:                                       {"-qtop", "/bin/true"},
		`/nowhere.sql`:              {"-pgque", "/nowhere.sql"},
		`no other arguments`:        {"clean"},
		`error parsing regexp: `:    {"-phases", "("},
		`-length of at least 1s`:    {"-length", "1ms"},
		`flag provided but not def`: {"-phase", "clean"},
	} {
		err := steady(t.Context(), append([]string{"-dir", dir}, args...), io.Discard, io.Discard)
		if wrong := (usageError{}); !errors.As(err, &wrong) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v: %v", args, err)
		}
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("the folder was made")
	}
	err := run(t.Context(), []string{"-run", "work,claim"}, io.Discard, io.Discard)
	if wrong := (usageError{}); !errors.As(err, &wrong) || !strings.Contains(err.Error(), `-run "work,claim" is a regular expression that matches none of: work; latency;`) {
		t.Errorf("make bench: %v", err)
	}
}

// An interrupted run writes what it has into the document, and says what is not measured.
func TestInterruptedRunReports(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	doc := filepath.Join(dir, "doc.md")
	if err := os.WriteFile(doc, []byte(docBegin+"\nold\n"+docEnd+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := &steadyRun{steadyOptions: steadyOptions{dir: dir}}
	kept := result{Method: method, Contestant: riverName, Version: moduleVersion(riverModule), Load: jobsLoad, Phase: "clean", Rate: 700, Planned: 300}
	other := kept
	other.Phase, other.Rate = "burst", 20
	if err := s.keep([]result{kept, other}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := steady(ctx, []string{"-dir", dir, "-doc", doc, "-contestants", "River", "-phases", "clean|burst|idle", "-rate", "700"}, io.Discard, io.Discard)
	if err == nil || err.Error() != "interrupted; the same command continues with River, idle-in-tx + recovery" {
		t.Errorf("%v", err)
	}
	text, _ := os.ReadFile(doc)
	for _, want := range []string{"**Not measured:**\n\n- idle-in-tx + recovery: River\n- burst: River\n", "| clean, 0s | River |", "Measured: River "} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if strings.Contains(string(text), "| burst") {
		t.Errorf("a phase at another rate is reported\n%s", text)
	}
	var out strings.Builder
	if err := steady(ctx, []string{"-dir", dir, "-report"}, &out, io.Discard); err != nil || !strings.Contains(out.String(), "| burst") || strings.Contains(out.String(), "Not measured") {
		t.Errorf("%v\n%s", err, out.String())
	}
}

// What is missing is listed by course; a contestant that cannot run here is named with the reason.
func TestMissingCoursesAndContestants(t *testing.T) {
	t.Parallel()
	s := &steadyRun{steadyOptions: steadyOptions{
		rate: 1, length: time.Second, phases: regexp.MustCompile("^(clean|burst)$"), contestants: regexp.MustCompile("^(qtop.*|River)$"),
		binaries: []binary{{name: qtopName}},
	}}
	s.absent = map[string]error{riverName: notRun{"no node"}}
	want := "- clean: qtop; qtop, webhooks; qtop, routed events\n- burst: qtop; qtop, webhooks; qtop, routed events\n- River: this contestant was not run: no node\n"
	if got := s.missing(); got != want {
		t.Errorf("%s", got)
	}
}

func TestPgQueVersionIsReadFromItsFile(t *testing.T) {
	t.Parallel()
	if v := pgqueVersion("create or replace function pgque.version()\nreturns text as $$\nbegin\n    return '0.2.0';\nend;"); v != "0.2.0" {
		t.Error(v)
	}
	if v := pgqueVersion("select 1"); v != "of unknown version" {
		t.Error(v)
	}
}
