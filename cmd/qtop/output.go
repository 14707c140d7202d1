package main

// Output of answers: a table for people, JSON for programs. Both contain
// sanitised text only.

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/charmbracelet/x/ansi"

	"github.com/qtop/qtop/config"
	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/pgclient/queue/secrecy"
	"github.com/qtop/qtop/views"
	"github.com/qtop/qtop/views/theme"
)

// writer holds the outputs of a verb and the form of its answers.
type writer struct {
	out, errs io.Writer
	output    string      // table, json, or another form that the verb declares
	ascii     atomic.Bool // text for people is written in ASCII; a reload changes it while loops log

	left, leftBefore []string // the warnings of leftOut in this answer, and in the one before
}

// answered is the writer of a verb's answer. It remembers the first error, so
// that verbs need not check for errors: run reports it.
type answered struct {
	io.Writer
	err error
}

func (w *answered) Write(p []byte) (int, error) {
	n, err := w.Writer.Write(p)
	if w.err == nil {
		w.err = err
	}
	return n, err
}

// cutOff reports whether a part of the answer could not be written.
func (a *writer) cutOff() bool {
	w, ok := a.out.(*answered)
	return ok && w.err != nil
}

// Unwrap returns the underlying writer, which may be a terminal.
func (w *answered) Unwrap() io.Writer { return w.Writer }

// encode writes one JSON value on a line. Characters that could control a
// terminal are escaped, also in stored JSON that is passed on unchanged.
func (a *writer) encode(w io.Writer, v any) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		fmt.Fprintln(a.errs, "qtop: cannot write the answer: "+err.Error())
		return
	}
	fmt.Fprintln(w, queue.BoundJSON(queue.EscapeJSON(strings.TrimSuffix(b.String(), "\n"))))
}

// asJSON writes v if the output is JSON, and reports whether it is.
func (a *writer) asJSON(v any) bool {
	if a.output == "json" {
		a.encode(a.out, v)
	}
	return a.output == "json"
}

// list returns the rows, but never nil: an empty list is [] in JSON.
func list[T any](rows []T) []T { return append([]T{}, rows...) }

// remedyHead is the head of the last column of findings. Its statements are to be pasted, and one that is
// cut could run in part.
const remedyHead = "REMEDY"

// print writes v as JSON, or the rows as a table below the column heads.
func (a *writer) print(v any, heads []string, rows [][]string) {
	if a.asJSON(v) {
		return
	}
	if len(rows) == 0 {
		fmt.Fprintln(a.out, "(none)")
		return
	}
	cut, ascii := "…", a.printsASCII()
	if ascii {
		cut = theme.Spell(cut)
	}
	for _, r := range rows {
		for i, c := range r {
			r[i] = queue.Clean(c).String()
			if ascii { // ASCII may be wider, so it is made before the column widths are measured
				r[i] = theme.ASCIIText(r[i])
			}
		}
	}
	for _, r := range rows {
		for i, c := range r {
			most := queue.Choose(heads[i] == remedyHead, queue.LineMost, queue.CellMost)
			if len(c) > most { // a text has at least as many bytes as cells, so shorter ones need no measuring
				r[i] = ansi.Truncate(c, most, cut)
			}
		}
	}
	widths := make([]int, len(heads))
	for i, h := range heads {
		widths[i] = ansi.StringWidth(h)
	}
	for _, r := range rows {
		for i, c := range r {
			widths[i] = max(widths[i], ansi.StringWidth(c))
		}
	}
	for _, r := range append([][]string{heads}, rows...) {
		var b strings.Builder
		for i, c := range r {
			b.WriteString(c)
			if i < len(r)-1 {
				b.WriteString(strings.Repeat(" ", widths[i]-ansi.StringWidth(c)+2))
			}
		}
		fmt.Fprintln(a.out, strings.TrimRight(b.String(), " "))
	}
}

// printf writes a line of an answer for people; a value in it takes queue.LineMost bytes at most.
func (a *writer) printf(format string, args ...any) {
	for i, arg := range args {
		switch v := arg.(type) {
		case string:
			if len(v) > queue.LineMost {
				args[i] = queue.Clean(v).Cut(queue.LineMost)
			}
		case queue.Text:
			args[i] = v.Cut(queue.LineMost)
		}
	}
	fmt.Fprintf(a.out, format, args...)
}

// answer prints rows; an empty list is [] in JSON.
func (a *writer) answer(v any, heads []string, rows [][]string) {
	if len(rows) == 0 {
		v = []any{}
	}
	a.print(v, heads, rows)
}

// rows prints one list of a source and returns the number of its rows.
func (a *writer) rows(src views.Source, list string) int {
	all := make([]int, src.Len)
	for i := range all {
		all[i] = i
	}
	heads, rows := src.Table(list)
	a.answer(src.Exported(list, all), heads, rows)
	if src.Note != "" {
		a.leftOut("not in this list: "+src.Note, "the list lacks "+src.Note)
	}
	return len(rows)
}

// nextAnswer begins an answer of --watch.
func (a *writer) nextAnswer() { a.left, a.leftBefore = nil, a.left }

// leftOut says what a list leaves out: below a table with the words below, else with the words warning
// on standard error, unless the answer before has said the same there.
func (a *writer) leftOut(below, warning string) {
	if a.output == "table" {
		a.printf("%s\n", below)
		return
	}
	if a.left = append(a.left, warning); !slices.Contains(a.leftBefore, warning) {
		a.warning(queue.Error{What: queue.Clean(warning)})
	}
}

// table prints one list of a source below earlier lines of the answer. The
// caller has handled JSON before.
func (a *writer) table(src views.Source, list string) {
	heads, rows := src.Table(list)
	a.print(nil, heads, rows)
}

// ofTotal says how many of the matching rows a list shows, if there are more.
func (a *writer) ofTotal(rows int, p queue.Page) {
	if p.TotalBound || int64(rows) < p.Total {
		line := fmt.Sprintf("%d of %s", rows, views.PlainBound(p.Total, p.TotalBound))
		a.leftOut(line, "the list has "+line+" rows")
	}
}

// say prints a line with its secrets masked.
func (a *writer) say(line string) { fmt.Fprintln(a.out, queue.Clean(secrecy.Mask(line))) }

// payload prints a payload, or the reason why there is none.
func (a *writer) payload(text, whyNot queue.Text, revealed int) {
	how := queue.Choose(revealed > 0, "WITH ITS SECRETS", "secrets masked")
	// A payload may be large, so printf, which cuts long values, is not used.
	for _, part := range []string{"payload (" + how + "): ", text.String(), whyNot.String(), "\n"} {
		_, _ = io.WriteString(a.out, part)
	}
}

func usage(what, where, do string) error {
	return &queue.Error{Kind: queue.KindUsage, What: queue.Clean(what), Where: queue.Clean(where), Do: queue.Clean(do)}
}

// exitError carries only an exit code, for a verb that has already printed its
// answer: health is critical, or an action was refused.
type exitError struct{ code int }

func (e *exitError) Error() string { return fmt.Sprintf("exit %d", e.code) }

const exitCritical = 3

// exit prints the error, one line for each problem, and returns the exit code.
func (a *writer) exit(err error) int {
	var ex *exitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &ex):
		return ex.code
	}
	if ps, ok := config.AsProblems(err); ok {
		for _, p := range ps {
			a.printError(queue.Error{What: queue.Clean(p.What), Where: queue.Clean(p.Where), Do: queue.Clean(p.Do)})
		}
		return int(queue.KindConfig)
	}
	var q *queue.Error
	if errors.As(err, &q) {
		a.printError(*q)
		return int(q.Kind)
	}
	msg := err.Error()
	a.printError(queue.Error{What: queue.Clean(msg)})
	return queue.Choose(strings.HasPrefix(msg, "unknown command") || strings.Contains(msg, "arg(s)"), int(queue.KindUsage), 1)
}

// warn prints the warnings about the settings, one line each.
func (a *app) warn() {
	for _, p := range a.settings.Warnings() {
		a.warning(queue.Error{What: queue.Clean(p.What), Where: queue.Clean(p.Where), Do: queue.Clean(p.Do)})
	}
}

func (a *writer) warning(e queue.Error) { a.tell("warning", "warning: ", e) }

func (a *writer) printError(e queue.Error) { a.tell("error", "", e) }

// tell prints a warning or an error on standard error: JSON if the answer is JSON or JSON lines.
func (a *writer) tell(kind, lead string, e queue.Error) {
	if strings.HasPrefix(a.output, "json") {
		a.encode(a.errs, map[string]any{kind: map[string]queue.Text{"what": e.What, "where": e.Where, "do": e.Do}})
		return
	}
	fmt.Fprintln(a.errs, "qtop: "+lead+e.Error())
}
