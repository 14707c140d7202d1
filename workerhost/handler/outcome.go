package handler

import (
	"errors"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Codes of a failed attempt. There are more codes: EXIT_<code> and SIGNAL_<name> of commands,
// HTTP_<status> and the codes of package sender for URLs, and the codes that Go handlers pass to
// Coded.
const (
	CodeError       = "HANDLER_ERROR" // an error without a code
	CodePanic       = "HANDLER_PANIC"
	CodeExit        = "HANDLER_EXIT"       // the handler called runtime.Goexit
	CodeHung        = "HANDLER_HUNG"       // the handler did not return when its context ended, and was abandoned
	CodeTimeout     = "TIMEOUT"            // the attempt used up its time
	CodeStopped     = "STOPPED"            // the host ended the attempt, because the host stops or the lease is lost
	CodeStartFailed = "START_FAILED"       // the command could not be started
	CodeBadJob      = "BAD_JOB"            // the job cannot be written as JSON
	CodeUnreadable  = "PAYLOAD_UNREADABLE" // the database cannot return the payload
)

const (
	// MaxText is how many bytes of an error's text are stored.
	MaxText = 4096
	// maxWrapped bounds how many errors are unwrapped, because an error may wrap itself.
	maxWrapped = 10000
)

// Failure is an error with a code. It also records whether the job may be retried.
type Failure struct {
	Code      string // "" = the code of Err, or HANDLER_ERROR
	Permanent bool   // no retry: the job ends as failed
	Err       error

	shortage error // see Shortage
}

// Error returns the text of Err, without the code.
func (f *Failure) Error() string {
	if f.Err == nil {
		return f.Code
	}
	return f.Err.Error()
}

// Unwrap returns Err.
func (f *Failure) Unwrap() error { return f.Err }

// Permanent marks err as an error that a retry would not fix: the job ends as failed at once,
// without a dead letter. Permanent(nil) is nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &Failure{Permanent: true, Err: err}
}

// Coded gives err a failure code, by which dead letters are grouped: upper-case letters, digits
// and underscores, at most 64 characters (^[A-Z][A-Z0-9_]{0,63}$). Any other code is recorded as
// HANDLER_ERROR. Coded(code, nil) is nil.
func Coded(code string, err error) error {
	if err == nil {
		return nil
	}
	return &Failure{Code: code, Err: err}
}

// Outcome returns the values to record for err: the outermost code that has the right form, at
// most MaxText bytes of the text as valid UTF-8 without NUL, and whether any Failure in err is
// permanent. Of joined errors the first one with such a code counts for the code, and all for
// permanent. For nil it returns zero values.
//
// Outcome calls methods of err, which may panic; errors that Runner.Run returned never do.
func Outcome(err error) (code, text string, permanent bool) {
	if err == nil {
		return "", "", false
	}
	eachFailure(err, func(f *Failure) {
		if code == "" && validCode(f.Code) {
			code = f.Code
		}
		permanent = permanent || f.Permanent
	})
	if code == "" {
		code = CodeError
	}
	return code, cleanText(err.Error(), MaxText), permanent
}

// Shortage returns what the host itself lacked, such as file descriptors or processes, so that a job could not
// begin; nil if err, which Runner.Run returned, has another cause. The job is not at fault: the host hands it back.
// Only a Command or URL that is itself the handler of the job has a shortage: any other handler that calls one may
// have done part of the work before, so its error is a failed attempt.
func Shortage(err error) error {
	if f, ok := errors.AsType[*Failure](err); ok {
		return f.shortage
	}
	return nil
}

// eachFailure calls f with each Failure in err, an outer one before those that it wraps, as
// [errors.As] walks; errors.As would not show what is beside the Failure that it finds.
func eachFailure(err error, f func(*Failure)) {
	remaining := maxWrapped
	var walk func(error)
	walk = func(err error) {
		for err != nil && remaining > 0 {
			remaining--
			var as *Failure
			if e, ok := err.(interface{ As(target any) bool }); ok && e.As(&as) {
				f(as)
				walk(as.Err)
			}
			switch w := err.(type) { //nolint:errorlint // it unwraps
			case *Failure:
				f(w)
				err = w.Err
			case interface{ Unwrap() error }:
				err = w.Unwrap()
			case interface{ Unwrap() []error }:
				for _, e := range w.Unwrap() {
					walk(e)
				}
				return
			default:
				return
			}
		}
	}
	walk(err)
}

func validCode(code string) bool {
	if code == "" || len(code) > 64 || code[0] < 'A' || code[0] > 'Z' {
		return false
	}
	return strings.Trim(code, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") == ""
}

// cleanText returns the start of s, at most limit bytes, in a form that PostgreSQL can store: NUL
// and bytes that are not UTF-8 become U+FFFD.
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

// withOutput appends the end of a command's output to what, the description of the failure. If
// both are too long, the front of the output is cut.
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

// errText is an error with a constant text.
type errText string

func (e errText) Error() string { return string(e) }
