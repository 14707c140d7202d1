package main

// The report in Markdown: machine, versions, goals and all figures.

import (
	"fmt"
	"io"
	"strings"
)

// limit is one aim of a goal; the zero value means that there is no aim.
type limit struct {
	set, most bool
	v         float64
}

func atLeast(v float64) limit { return limit{set: true, v: v} }
func atMost(v float64) limit  { return limit{set: true, most: true, v: v} }

func (l limit) met(v float64) bool { return l.set && (l.most && v <= l.v || !l.most && v >= l.v) }

func (l limit) String() string {
	switch {
	case !l.set:
		return "–"
	case l.most:
		return "≤ " + number(l.v)
	}
	return "≥ " + number(l.v)
}

// goal is one line of the table. With a peer, it compares the ratio of qtop to the peer with its
// aims; without a peer, it compares the figure of qtop.
type goal struct {
	text           string
	ours, peer     measure
	peerName       string
	floor, stretch limit
}

func (g goal) ratio() measure {
	if !g.peer.taken() {
		return measure{}
	}
	return g.ours.over(g.peer)
}

func (g goal) verdict() string {
	judged := g.ratio()
	if g.peerName == "" {
		judged = g.ours
	}
	switch {
	case !judged.taken():
		return "not measured"
	case g.stretch.met(judged.median()):
		return "stretch"
	case g.floor.met(judged.median()):
		return "floor"
	case !g.floor.set && !g.stretch.set:
		return "–"
	}
	return "no"
}

// part is one section of the report.
type part struct {
	title string
	goals []goal
	figs  *figures
	notes []string
}

type report struct {
	header [][2]string
	parts  []part
	wrong  []string
}

func (r report) write(w io.Writer) {
	fmt.Fprint(w, "| machine and method | |\n|---|---|\n")
	for _, kv := range r.header {
		line(w, kv[0], kv[1])
	}
	fmt.Fprint(w, "\n| goal | ours | peer or limit | ratio | floor | stretch | met? |\n|---|---|---|---|---|---|---|\n")
	for _, p := range r.parts {
		for _, g := range p.goals {
			peer := "–"
			if g.peerName != "" {
				peer = g.peerName + " " + g.peer.String()
			}
			line(w, g.text, g.ours.String(), peer, g.ratio().String(), g.floor.String(), g.stretch.String(), g.verdict())
		}
	}
	fmt.Fprint(w, "\nAll figures, median (min–max) of the rounds:\n\n| measured | of | figure | value |\n|---|---|---|---|\n")
	for _, p := range r.parts {
		for _, k := range p.figs.keys {
			line(w, p.title, k.who, k.what, p.figs.by[k].String())
		}
	}
	for _, p := range r.parts {
		for _, n := range append(p.notes, p.figs.outs...) {
			fmt.Fprintf(w, "\n- %s: %s", p.title, n)
		}
	}
	fmt.Fprintln(w)
	for _, wrong := range r.wrong {
		fmt.Fprintf(w, "\n**Wrong:** %s\n", wrong)
	}
}

// line writes one row of a table. It replaces bars and line breaks, which would end a cell.
func line(w io.Writer, cells ...string) {
	for i, c := range cells {
		cells[i] = strings.NewReplacer("|", "\\|", "\n", " ").Replace(c)
	}
	fmt.Fprintf(w, "| %s |\n", strings.Join(cells, " | "))
}
