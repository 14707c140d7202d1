package queue

import (
	"errors"

	"github.com/qtop/qtop/pgclient/queue/secrecy"
)

// Kind is the kind of an Error; the command line uses it as the exit code.
type Kind int

// The kinds, with their exit codes.
const (
	KindFailed      Kind = 1
	KindUsage       Kind = 2
	KindUnavailable Kind = 69
	KindPermission  Kind = 77
	KindConfig      Kind = 78
)

// Error is one line for an operator: what happened, where it came from, and what to do.
type Error struct {
	Kind  Kind
	What  Text  // what happened
	Where Text  // to what, such as a file, an address or a flag; may be empty
	Do    Text  // what to do; may be empty
	Err   error // the cause; may be nil
}

// NewError returns an error; where and do may be empty.
func NewError(kind Kind, what, where, do string) *Error {
	return &Error{Kind: kind, What: Clean(what), Where: Clean(where), Do: Clean(do)}
}

// ErrNoQueue is the cause of the error for a name that no queue has.
var ErrNoQueue = errors.New("no queue has this name")

// Because sets the cause of the error and returns it.
func (e *Error) Because(err error) *Error {
	e.Err = err
	return e
}

// Error returns "what (where): do", with the secrets of this process masked.
func (e *Error) Error() string {
	s := e.What.String()
	if w := e.Where.String(); w != "" {
		s += " (" + w + ")"
	}
	if d := e.Do.String(); d != "" {
		s += ": " + d
	}
	return secrecy.Mask(s)
}

// Said returns the text of an error from a library: with secrets masked, then made safe to print.
func Said(err error) Text { return Clean(secrecy.Mask(err.Error())) }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// KindOf returns the kind of the first *Error in the chain; KindFailed if there is none.
func KindOf(err error) Kind {
	var e *Error
	if errors.As(err, &e) {
		return e.Kind
	}
	return KindFailed
}
