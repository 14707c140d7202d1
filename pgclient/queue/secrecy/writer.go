package secrecy

import "io"

// Writer masks everything that is written through it. Each Write is masked separately, so pass
// whole lines, as a log or a print function does.
type Writer struct{ W io.Writer }

// Write masks p and writes it; it returns the length of p.
func (w Writer) Write(p []byte) (int, error) {
	if _, err := io.WriteString(w.W, Mask(string(p))); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Unwrap returns the underlying writer, which may be a terminal.
func (w Writer) Unwrap() io.Writer { return w.W }
