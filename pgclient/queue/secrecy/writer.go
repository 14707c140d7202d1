package secrecy

// This file is masking on the way out: for what is written rather than returned.

import "io"

// Writer masks what passes. Each Write is masked by itself: give it whole lines,
// as a log or a print does.
type Writer struct{ W io.Writer }

// Write masks p and writes it; it says that it wrote all of p.
func (w Writer) Write(p []byte) (int, error) {
	if _, err := io.WriteString(w.W, Mask(string(p))); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Unwrap is what stands behind it: a terminal, or not.
func (w Writer) Unwrap() io.Writer { return w.W }
