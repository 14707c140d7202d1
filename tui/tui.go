package tui

import (
	"context"
	"os"

	tea "charm.land/bubbletea/v2"
)

// New returns the model of the console. Run is the usual way to start it; tests drive the model directly.
func New(s Store, h Host, o Options) tea.Model { return newRoot(context.Background(), s, h, o) }

// framesPerSecond limits how often a changed frame is written. The frame of a
// key press waits for the next of these moments: at 60, the default of Bubble
// Tea, that is up to 16.7 ms and most of the time from the key press to its
// frame.
const framesPerSecond = 90

// Run shows the console until the operator quits or ctx ends. It returns nil when ctx
// ends; the caller that cancels ctx also drains the loops.
func Run(ctx context.Context, s Store, h Host, o Options, opts ...tea.ProgramOption) error {
	if o.Accessible {
		return accessible(ctx, s, o.withDefaults(), os.Stdout)
	}
	m := newRoot(ctx, s, h, o)
	defer func() { m.saving.end() }()
	defer m.cancel()
	// The caller handles signals and ends ctx. Quit, not Kill: a killed program closes
	// its input while a goroutine still reads from it.
	p := tea.NewProgram(m, append([]tea.ProgramOption{tea.WithoutSignalHandler(), tea.WithFPS(framesPerSecond)}, opts...)...)
	defer context.AfterFunc(ctx, p.Quit)()
	_, err := p.Run()
	return err
}
