package queue

// This file is how a row is found among others, and which of two values holds.

import "slices"

// Find is the first row that is what is looked for.
func Find[T any](rows []T, is func(T) bool) (found T, ok bool) {
	if i := slices.IndexFunc(rows, is); i >= 0 {
		return rows[i], true
	}
	return found, false
}

// Choose is yes where the condition holds. Both values are made in any case.
func Choose[T any](condition bool, yes, no T) T {
	if condition {
		return yes
	}
	return no
}

// OrEmpty is a picture that has nothing, where there is none yet.
func (s *Snapshot) OrEmpty() *Snapshot {
	if s == nil {
		return &Snapshot{}
	}
	return s
}

// Flag is the flag of this key.
func (s *Snapshot) Flag(key string) (Flag, bool) {
	return Find(s.OrEmpty().Flags, func(f Flag) bool { return f.Key.String() == key })
}

// Name is the queue as why takes it: a kind of jobs with its domain.
func (w Waiting) Name() string {
	return w.Queue.String() + Choose(w.Source == "job", " in "+w.Domain.String(), "")
}
