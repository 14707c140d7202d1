package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/qtop/qtop/pgclient/queue"
)

// exitInterrupted is the exit code of a verb that a signal interrupted, the same
// that shells use for ctrl+c.
const exitInterrupted = 130

const (
	nothingChanged = "nothing was changed"
	unsureAction   = "qtop does not know whether the action was done: see qtop audit"
)

// errInterrupted is the error of awaitInput if a signal came before the input.
var errInterrupted = errors.New("interrupted")

// awaitInput calls read, which reads standard input. It returns when read
// returns or ctx ends, whichever is first, because a signal does not end a
// read of a terminal. Input that arrives after that is lost.
func awaitInput[T any](ctx context.Context, read func() (T, error)) (T, error) {
	type result struct {
		v   T
		err error
	}
	done := make(chan result, 1)
	go func() {
		v, err := read()
		done <- result{v, err}
	}()
	select {
	case r := <-done:
		return r.v, r.err
	case <-ctx.Done():
		var none T
		return none, errInterrupted
	}
}

// interrupted reports that a signal came before the answer, and returns the
// exit code.
func (a *app) interrupted() error {
	if terminal(a.in) {
		_, _ = a.errs.Write([]byte("\n")) // ends the line of the question
	}
	a.printError(queue.Error{What: queue.Clean("interrupted: " + nothingChanged)})
	return &exitError{exitInterrupted}
}

// afterSignal returns the error of a verb; if it failed because a signal cancelled what it did, it
// reports that instead.
func (a *app) afterSignal(ctx context.Context, err error) error {
	var pg *pgconn.PgError
	cancelled := errors.Is(err, context.Canceled) || errors.As(err, &pg) && pg.Code == "57014"
	if ctx.Err() == nil || !cancelled {
		return err
	}
	a.printError(queue.Error{What: queue.Clean(a.interruption("interrupted"))})
	return &exitError{exitInterrupted}
}

// interruption adds to what happened what that leaves unknown.
func (a *app) interruption(what string) string {
	unsure, _ := a.unsure.Load().(string)
	return strings.TrimSuffix(what+": "+unsure, ": ")
}

// knownTerminals are families of terminals that understand the escape
// sequences of xterm, even if this machine's terminfo database does not
// describe them.
var knownTerminals = []string{
	"xterm", "screen", "tmux", "linux", "rxvt", "vt1", "vt2", "vt3", "vt4", "vt5", "ansi", "cygwin", "konsole", "gnome", "kitty", "alacritty",
	"foot", "wezterm", "ghostty", "st", "iterm", "putty", "mlterm", "contour", "eterm", "aterm", "dtterm", "mintty", "nsterm", "sun", "wsvt25", "pccon", "hurd", "teraterm", "terminator", "vte", "zellij",
}

// knownTerminal reports whether TERM names a terminal: a name of
// knownTerminals, with or without a suffix such as -256color, or a name that
// this machine's terminfo has.
func knownTerminal(term string) bool {
	family, _, _ := strings.Cut(strings.ToLower(term), "-")
	if slices.ContainsFunc(knownTerminals, func(k string) bool {
		return family == k || strings.HasPrefix(k, "vt") && len(k) == 3 && strings.HasPrefix(family, k)
	}) {
		return true
	}
	if strings.ContainsAny(term, `/\`) || strings.HasPrefix(term, ".") {
		return false
	}
	dirs := append([]string{os.Getenv("TERMINFO")}, filepath.SplitList(os.Getenv("TERMINFO_DIRS"))...)
	if home, err := os.UserHomeDir(); err == nil {
		dirs = append(dirs, filepath.Join(home, ".terminfo"))
	}
	dirs = append(dirs, "/etc/terminfo", "/lib/terminfo", "/usr/share/terminfo", "/usr/lib/terminfo", "/usr/local/share/terminfo", "/opt/homebrew/share/terminfo")
	const hex = "0123456789abcdef"
	for _, dir := range dirs {
		for _, sub := range []string{term[:1], string([]byte{hex[term[0]>>4], hex[term[0]&15]})} {
			if dir == "" {
				continue
			}
			if info, err := os.Stat(filepath.Join(dir, sub, term)); err == nil && info.Mode().IsRegular() {
				return true
			}
		}
	}
	return false
}
