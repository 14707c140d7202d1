package queue

// This file gives errors the three parts an operator needs: what happened, where
// it came from, what to do.

import (
	"errors"

	"github.com/qtop/qtop/pgclient/queue/secrecy"
)

// Kind sorts an Error; the command line turns it into an exit code.
type Kind int

// The kinds, with their exit codes.
const (
	KindFailed      Kind = 1
	KindUsage       Kind = 2
	KindUnavailable Kind = 69
	KindPermission  Kind = 77
	KindConfig      Kind = 78
)

// Error is one clear line.
type Error struct {
	Kind  Kind
	What  Text
	Where Text
	Do    Text
	Err   error // the cause; may be nil
}

// NewError is an error with all its parts; where and do may be empty.
func NewError(kind Kind, what, where, do string) *Error {
	return &Error{Kind: kind, What: Clean(what), Where: Clean(where), Do: Clean(do)}
}

// Because gives it its cause.
func (e *Error) Because(err error) *Error {
	e.Err = err
	return e
}

// Error is "what (where): do", without the secrets of this process.
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

// Said is the text of an error of a library: masked, then cleaned.
func Said(err error) Text { return Clean(secrecy.Mask(err.Error())) }

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Err }

// KindOf is the kind of the first Error in the chain, KindFailed without one.
func KindOf(err error) Kind {
	var e *Error
	if errors.As(err, &e) {
		return e.Kind
	}
	return KindFailed
}
