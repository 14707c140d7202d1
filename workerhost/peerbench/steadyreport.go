package main

// The report: tables, and a chart of the start delays in each phase.

import (
	"fmt"
	"maps"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"
)

// The markers around the part of a document that the report replaces.
const (
	docBegin = "<!-- steady: begin (written by make bench-steady) -->"
	docEnd   = "<!-- steady: end -->"
)

func writeIntoDocument(file, text string) error {
	old, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	before, rest, begins := strings.Cut(string(old), docBegin)
	_, after, ends := strings.Cut(rest, docEnd)
	if !begins || !ends {
		return fmt.Errorf("%s has no markers %q and %q", file, docBegin, docEnd)
	}
	return os.WriteFile(file, []byte(before+docBegin+"\n\n"+text+"\n"+docEnd+after), 0o644)
}

const (
	loaded     = "°" // marks figures that were measured while the machine had other work
	startsOnly = "†" // marks figures that count starts, for want of records of finished jobs
)

func (r result) busy() bool { return r.Busy > busy }

// report returns the report as Markdown.
func (s *steadyRun) report() string {
	rs := s.ordered()
	if len(rs) == 0 {
		return "Nothing is measured.\n"
	}
	var t strings.Builder
	first, last := rs[0].At, rs[0].At
	marked := false
	for _, r := range rs {
		if r.At.Before(first) {
			first = r.At
		}
		if r.At.After(last) {
			last = r.At
		}
		marked = marked || r.busy()
	}
	fmt.Fprintf(&t, "%s to %s; %s jobs a second; %s, %d cores, %s, shared by server, contestants, producer and receiver.\n",
		first.Format("2006-01-02 15:04"), last.Format("2006-01-02 15:04 UTC"), rates(rs), procField("/proc/cpuinfo", "model name"),
		runtime.NumCPU(), memory())
	if slices.ContainsFunc(rs, func(r result) bool { return !r.Recorded }) {
		fmt.Fprintf(&t, "\n%s: this queue keeps no finished jobs. What is counted are starts: started/s, the depth of jobs not started, and, as lost, "+
			"those never started.\n", startsOnly)
	}
	fmt.Fprintf(&t, "\nMeasured: %s.\n", measuredVersions(rs))
	if missing := s.missing(); missing != "" {
		fmt.Fprintf(&t, "\n**Not measured:**\n\n%s", missing)
	}
	if marked {
		fmt.Fprintf(&t, "\n**%s: the machine was busy with other work** (over %.0f %% of its processors' time just before the course): read the shape, not the digits.\n", loaded, 100*busy)
	}
	for _, load := range []string{jobsLoad, webhooksLoad, routedLoad} {
		of := slices.DeleteFunc(slices.Clone(rs), func(r result) bool { return r.Load != load })
		if len(of) == 0 {
			continue
		}
		fmt.Fprintf(&t, "\n### %s\n\n", strings.ToUpper(load[:1])+load[1:])
		resultTable(&t, of)
		besideList(&t, of)
		chart(&t, of)
	}
	return t.String()
}

// measuredVersions returns the versions of the contestants and of PostgreSQL.
func measuredVersions(rs []result) string {
	var all, servers, versions []string
	for _, r := range rs {
		if !slices.Contains(versions, r.Version) { // the loads of qtop have one
			versions = append(versions, r.Version)
			all = append(all, r.Contestant+" "+r.Version)
		}
		if r.Server != "" && !slices.Contains(servers, r.Server) {
			servers = append(servers, r.Server)
		}
	}
	return strings.Join(append(all, servers...), "; ")
}

// missing lists what this run should have measured and has not: because it was interrupted, because
// a course failed, or because a contestant cannot run here.
func (s *steadyRun) missing() string {
	if s.all {
		return ""
	}
	var list strings.Builder
	at := ""
	for _, t := range s.unmeasured() {
		switch name := t.course.name(); {
		case s.absent[t.who.name] != nil:
			continue
		case name == at:
			list.WriteString("; " + t.who.name)
		default:
			if at != "" {
				list.WriteString("\n")
			}
			at = name
			list.WriteString("- " + name + ": " + t.who.name)
		}
	}
	if at != "" {
		list.WriteString("\n")
	}
	for _, name := range slices.Sorted(maps.Keys(s.absent)) {
		fmt.Fprintf(&list, "- %s: %v\n", name, s.absent[name])
	}
	return list.String()
}

// rates returns the rates of the results, usually one.
func rates(rs []result) string {
	var all []string
	for _, r := range rs {
		if text := fmt.Sprint(r.Rate); !slices.Contains(all, text) {
			all = append(all, text)
		}
	}
	return strings.Join(all, ", ")
}

// ordered returns the last result of each phase and contestant, ordered by phase and then by the
// time of the measurement.
func (s *steadyRun) ordered() (rs []result) {
	results := s.reported()
	for _, c := range courses() {
		for _, p := range c {
			var of []result
			for _, r := range results {
				if r.Phase != p.name {
					continue
				}
				if i := slices.IndexFunc(of, func(x result) bool { return x.Contestant == r.Contestant }); i >= 0 {
					of[i] = r
				} else {
					of = append(of, r)
				}
			}
			rs = append(rs, of...)
		}
	}
	return rs
}

func resultTable(t *strings.Builder, rs []result) {
	line(t, "phase", "contestant", "start p50 / p95 / p99, ms", "end to end p99, ms", "completed/s", "depth max / end", "dead rows", "size, MB",
		"WAL bytes/job", "commits/job", "server CPU s/1,000", "snapshot p50 / max, ms", "lost", "again", "no answer", "host restarts", "recovered, s")
	line(t, slices.Repeat([]string{"---"}, 17)...)
	for _, r := range rs {
		mark := ""
		if r.busy() {
			mark = " " + loaded
		}
		snapshot := "–"
		if r.Snapshot != nil {
			snapshot = figureText(r.Snapshot) + " / " + figureText(r.SnapMax)
		}
		recovered := figureText(r.Recovered)
		if r.Recovered != nil && *r.Recovered < 0 {
			recovered = "not in the phase"
		} else if r.Recovered != nil {
			recovered = fmt.Sprintf("%.0f", *r.Recovered)
		}
		counted := "" // marks figures that count starts
		if !r.Recorded {
			counted = " " + startsOnly
		}
		lost := fmt.Sprint(r.Lost)
		if r.Waiting > 0 {
			lost = fmt.Sprintf("%d still waiting", r.Waiting)
		}
		line(t, fmt.Sprintf("%s, %s", r.Phase, time.Duration(r.Seconds*float64(time.Second)).Round(time.Second)), r.Contestant+mark,
			figureText(r.StartP50)+" / "+figureText(r.StartP95)+" / "+figureText(r.StartP99), figureText(r.EndP99), number(r.PerSecond)+counted,
			fmt.Sprintf("%d / %d", r.DepthMax, r.DepthEnd)+counted, figureText(r.DeadMax), megabytes(r.Bytes), figureText(r.WAL), figureText(r.Commits),
			figureText(r.CPU), snapshot, lost+counted, fmt.Sprint(r.Twice), fmt.Sprint(r.Unanswered), fmt.Sprint(r.Restarts), recovered)
	}
}

// besideList lists what happened in the courses of these results outside of their phases.
func besideList(t *strings.Builder, rs []result) {
	title := "\nBeside the phases, in the warm-up, between them and after the last:\n\n"
	for _, r := range rs {
		if r.Beside == nil {
			continue
		}
		var parts []string
		for _, f := range []struct {
			n    int
			what string
		}{
			{r.Beside.Lost, "lost"}, {r.Beside.Waiting, "still waiting"}, {r.Beside.Twice, "started again"},
			{r.Beside.Unanswered, "inserts without an answer"}, {r.Beside.Restarts, "host restarts"},
		} {
			if f.n > 0 {
				parts = append(parts, fmt.Sprintf("%d %s", f.n, f.what))
			}
		}
		fmt.Fprintf(t, "%s- %s, the course that begins with %s: %s\n", title, r.Contestant, r.Phase, strings.Join(parts, ", "))
		title = ""
	}
}

func figureText(v *float64) string {
	if v == nil {
		return "–"
	}
	return number(*v)
}

func megabytes(v *float64) string {
	if v == nil {
		return "–"
	}
	return number(*v / 1e6)
}

// chart draws the median start delay of each tenth of each phase, as blocks on a logarithmic
// scale.
func chart(t *strings.Builder, rs []result) {
	low, high := math.Inf(1), 0.0
	var widthPhase, widthName int
	for _, r := range rs {
		for _, v := range r.Tenths {
			if v > 0 {
				low, high = min(low, v), max(high, v)
			}
		}
		widthPhase, widthName = max(widthPhase, len(r.Phase)), max(widthName, len(r.Contestant))
	}
	if high == 0 {
		return
	}
	fmt.Fprintf(t, "\nMedian start in each tenth of a phase, logarithmic from %s to %s ms; × = half or more were never started:\n\n```text\n", number(low), number(high))
	for _, r := range rs {
		fmt.Fprintf(t, "%-*s  %-*s  ", widthPhase, r.Phase, widthName, r.Contestant)
		for _, v := range r.Tenths {
			t.WriteRune(block(v, low, high))
		}
		if n := len(r.Tenths); n > 0 && r.Tenths[n-1] > 0 {
			fmt.Fprintf(t, "  %s ms at the end", number(r.Tenths[n-1]))
		}
		fmt.Fprintln(t)
	}
	fmt.Fprint(t, "```\n")
}

func block(v, low, high float64) rune {
	blocks := []rune("▁▂▃▄▅▆▇█")
	switch {
	case v < 0:
		return '×'
	case v == 0:
		return ' '
	case high <= low:
		return blocks[0]
	}
	return blocks[min(len(blocks)-1, int(math.Log(v/low)/math.Log(high/low)*float64(len(blocks))))]
}
