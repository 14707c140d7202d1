package main

// This file writes answers: a table for people, JSON for programs. Both carry
// sanitised text only.

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/qtop/qtop/pgclient/queue"
)

// encode writes one JSON value on a line. Whatever could act on a terminal is
// escaped, also in members that are passed on as they are stored.
func (a *app) encode(w io.Writer, v any) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		fmt.Fprintln(a.errs, "qtop: cannot write the answer: "+err.Error())
		return
	}
	fmt.Fprintln(w, queue.BoundJSON(queue.EscapeJSON(strings.TrimSuffix(b.String(), "\n"))))
}

// print writes v as JSON, or the rows as a table under their heads.
func (a *app) print(v any, heads []string, rows [][]string) {
	if a.output == "json" {
		a.encode(a.out, v)
		return
	}
	if len(rows) == 0 {
		fmt.Fprintln(a.out, "(none)")
		return
	}
	for _, r := range rows {
		for i, c := range r {
			if len(c) > queue.CellMost { // bytes: at least as many as columns
				r[i] = ansi.Truncate(c, queue.CellMost, "…")
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
func (a *app) printf(format string, args ...any) {
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

// age is a duration in the two largest units.
func age(seconds int64) string {
	d := time.Duration(seconds) * time.Second
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", seconds)
	case d < time.Hour:
		return fmt.Sprintf("%dm %02ds", seconds/60, seconds%60)
	case d < 100*time.Hour:
		return fmt.Sprintf("%dh %02dm", seconds/3600, seconds/60%60)
	}
	return fmt.Sprintf("%dd %02dh", seconds/86400, seconds/3600%24)
}

func agePtr(seconds *int64) string {
	if seconds == nil {
		return "-"
	}
	return age(*seconds)
}

func num(n *int64) string {
	if n == nil {
		return "-"
	}
	return fmt.Sprint(*n)
}

func stamp(t *time.Time) string {
	if t == nil || t.IsZero() {
		return "-"
	}
	return queue.Stamp(*t, time.RFC3339)
}
