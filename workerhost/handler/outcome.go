package handler

// This file turns the error of a handler into what is recorded of a try.

import (
	"errors"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Codes of a failed try. Beside them stand EXIT_<code> and SIGNAL_<name> of
// commands, HTTP_<status> and the codes of package sender of URLs, and what
// handlers in Go give to Coded.
const (
	CodeError       = "HANDLER_ERROR" // an error without a code of its own
	CodePanic       = "HANDLER_PANIC"
	CodeExit        = "HANDLER_EXIT" // runtime.Goexit
	CodeHung        = "HANDLER_HUNG" // did not return when its context ended; abandoned
	CodeTimeout     = "TIMEOUT"      // the time of the try was used up
	CodeStopped     = "STOPPED"      // the host ended the try: it drains, or the lease is lost
	CodeStartFailed = "START_FAILED" // the command could not be started
	CodeBadJob      = "BAD_JOB"      // the job cannot be written as JSON
)

const (
	// MaxText is what the row holds of an error's text, in bytes.
	MaxText = 4096
	// maxWrapped bounds the search in an error that wraps itself.
	maxWrapped = 100
)

// Failure is an error with what the queue is to make of it.
type Failure struct {
	Code      string // "" = that of Err, or HANDLER_ERROR
	Permanent bool   // no further try: the job ends as failed
	Err       error
}

// Error is the text of Err; the code is recorded beside it.
func (f *Failure) Error() string {
	if f.Err == nil {
		return f.Code
	}
	return f.Err.Error()
}

// Unwrap gives Err.
func (f *Failure) Unwrap() error { return f.Err }

// Permanent says that another try would fail as well: the job ends as failed at
// once, without a dead letter. nil stays nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &Failure{Permanent: true, Err: err}
}

// Coded gives err a failure code, by which dead letters are grouped: upper case,
// digits and underscores, at most 64 (^[A-Z][A-Z0-9_]{0,63}$). One of another
// form is recorded as HANDLER_ERROR. nil stays nil.
func Coded(code string, err error) error {
	if err == nil {
		return nil
	}
	return &Failure{Code: code, Err: err}
}

// Outcome is what is recorded for err: the outermost code that has the right
// form, the text as at most MaxText bytes of valid UTF-8 without NUL, and whether
// any Failure on the way calls it permanent. nil gives zero values.
//
// It calls methods of the error; Runner.Run does so where it can be contained.
func Outcome(err error) (code, text string, permanent bool) {
	if err == nil {
		return "", "", false
	}
	for rest, n := err, 0; rest != nil && n < maxWrapped; n++ {
		f, ok := errors.AsType[*Failure](rest)
		if !ok {
			break
		}
		if code == "" && validCode(f.Code) {
			code = f.Code
		}
		permanent = permanent || f.Permanent
		rest = f.Err
	}
	if code == "" {
		code = CodeError
	}
	return code, cleanText(err.Error(), MaxText), permanent
}

func validCode(code string) bool {
	if code == "" || len(code) > 64 || code[0] < 'A' || code[0] > 'Z' {
		return false
	}
	return strings.Trim(code, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") == ""
}

// cleanText is the start of s that fits, in a form that PostgreSQL stores: what
// is not UTF-8, and NUL, become U+FFFD.
func cleanText(s string, limit int) string {
	var b strings.Builder
	b.Grow(min(len(s), limit))
	for _, r := range s {
		if r == 0 {
			r = utf8.RuneError
		}
		if b.Len()+utf8.RuneLen(r) > limit {
			break
		}
		b.WriteRune(r)
	}
	return b.String()
}

// withOutput is a text made of what happened and the end of what was said about
// it, cut at the front of the latter.
func withOutput(what, output string, cut bool) string {
	const gap, mark = ": ", "…"
	output = strings.TrimRightFunc(cleanText(output, 3*len(output)), unicode.IsSpace)
	room := MaxText - len(what) - len(gap) - len(mark)
	if over := len(output) - room; over > 0 {
		for !utf8.RuneStart(output[over]) {
			over++
		}
		output, cut = output[over:], true
	}
	switch {
	case output == "":
		return what
	case cut:
		return what + gap + mark + output
	}
	return what + gap + output
}

// errText is an error of a constant text.
type errText string

func (e errText) Error() string { return string(e) }
