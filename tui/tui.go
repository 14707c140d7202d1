package tui

import (
	"context"
	"os"

	tea "charm.land/bubbletea/v2"
)

// New returns the model of the console. Run is the usual way to start it; tests drive the model directly.
func New(s Store, h Host, o Options) tea.Model { return newRoot(context.Background(), s, h, o) }

// framesPerSecond limits how often a changed frame is written; 120 is the most
// that Bubble Tea allows. A key press, and the first frame, are visible at the
// next of these moments: at 60 per second, its default, they would wait up to
// 16.7 ms, which is most of the time that a key takes.
const framesPerSecond = 120

// Run shows the console until the operator quits or ctx ends; the end of ctx is no error, and the
// caller that cancels ctx also drains the loops. Run ends the call of an action in progress. unshown is
// the title of its dialog: its result is unknown to the operator. "": no action was in progress.
func Run(ctx context.Context, s Store, h Host, o Options, opts ...tea.ProgramOption) (unshown string, err error) {
	if o.Accessible {
		return "", accessible(ctx, s, o.withDefaults(), os.Stdout)
	}
	m := newRoot(ctx, s, h, o)
	defer func() { m.saving.end() }()
	defer m.cancel()
	// Signals are the caller's task, so Bubble Tea must not handle them. Quit
	// instead of Kill: a killed program closes its input while a goroutine
	// still reads from it.
	p := tea.NewProgram(m, append([]tea.ProgramOption{tea.WithoutSignalHandler(), tea.WithFPS(framesPerSecond)}, opts...)...)
	defer context.AfterFunc(ctx, p.Quit)()
	_, err = p.Run()
	return m.unshown, err
}
