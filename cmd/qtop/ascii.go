package main

import (
	"io"
	"os"
	"strings"

	"github.com/qtop/qtop/config"
	"github.com/qtop/qtop/views/theme"
)

// asciiWriter writes text in ASCII while on returns true: signs of qtop become
// their ASCII twins (package theme), all other characters are escaped.
type asciiWriter struct {
	W  io.Writer
	on func() bool
}

// Write writes p, which must end with a whole character. It returns len(p),
// although more bytes may be written.
func (w asciiWriter) Write(p []byte) (int, error) {
	if !w.on() {
		return w.W.Write(p)
	}
	if _, err := io.WriteString(w.W, theme.ASCIIText(string(p))); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Unwrap returns the underlying writer, which may be a terminal.
func (w asciiWriter) Unwrap() io.Writer { return w.W }

// asItIs returns the writer below an asciiWriter, for output that another
// program reads, such as SQL. If w is no asciiWriter, it returns w.
func asItIs(w io.Writer) io.Writer {
	for inner := w; ; {
		if a, ok := inner.(asciiWriter); ok {
			return a.W
		}
		next, ok := inner.(interface{ Unwrap() io.Writer })
		if !ok {
			return w
		}
		inner = next.Unwrap()
	}
}

// printsASCII reports whether answers are written in ASCII. JSON and CSV are
// data and are not converted.
func (a *writer) printsASCII() bool {
	return a.ascii.Load() && (a.output == "table" || a.output == "markdown" || a.output == "")
}

// saysASCII reports whether errors, warnings and questions are written in
// ASCII.
func (a *writer) saysASCII() bool { return a.ascii.Load() && !strings.HasPrefix(a.output, "json") }

// asciiAtFirst reports whether environment or command line ask for ASCII. It
// is needed for messages before the settings are read.
func asciiAtFirst(args []string) bool {
	on := config.ASCIIByEnvironment(os.Environ())
	for _, arg := range args {
		switch {
		case arg == "--":
			return on
		case arg == "--ascii":
			on = true
		case strings.HasPrefix(arg, "--ascii="):
			on = config.ASCIIByEnvironment([]string{"QTOP_ASCII=" + strings.TrimPrefix(arg, "--ascii=")})
		}
	}
	return on
}
