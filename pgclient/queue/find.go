package queue

import "slices"

// Find returns the first row for which is returns true.
func Find[T any](rows []T, is func(T) bool) (found T, ok bool) {
	if i := slices.IndexFunc(rows, is); i >= 0 {
		return rows[i], true
	}
	return found, false
}

// Choose returns yes if the condition holds, otherwise no. Both arguments are evaluated.
func Choose[T any](condition bool, yes, no T) T {
	if condition {
		return yes
	}
	return no
}

// OrEmpty returns s, or an empty snapshot if s is nil.
func (s *Snapshot) OrEmpty() *Snapshot {
	if s == nil {
		return &Snapshot{}
	}
	return s
}

// Flag returns the flag with this key.
func (s *Snapshot) Flag(key string) (Flag, bool) {
	return Find(s.OrEmpty().Flags, func(f Flag) bool { return f.Key.String() == key })
}

// Name returns the name by which fn_queue_why knows the queue: for jobs, the kind with its domain.
func (w Waiting) Name() string {
	return w.Queue.String() + Choose(w.Source == "job", " in "+w.Domain.String(), "")
}
