package tui

// This file is the way in: options, the model and the program around it.

import (
	"context"
	"os"

	tea "charm.land/bubbletea/v2"
)

// New makes the model; Run runs it.
func New(s Store, h Host, o Options) tea.Model { return newRoot(context.Background(), s, h, o) }

// Run shows the console until it is quit or ctx ends. An end by ctx is no error:
// whoever cancels it drains the loops.
func Run(ctx context.Context, s Store, h Host, o Options, opts ...tea.ProgramOption) error {
	if o.Accessible {
		return accessible(ctx, s, o.withDefaults(), os.Stdout)
	}
	m := newRoot(ctx, s, h, o)
	defer func() { m.saving.end() }()
	defer m.cancel()
	// Whoever runs the console answers signals, by ending ctx. It ends by Quit: a
	// program that is killed closes its input under the goroutine that reads it.
	p := tea.NewProgram(m, append([]tea.ProgramOption{tea.WithoutSignalHandler()}, opts...)...)
	defer context.AfterFunc(ctx, p.Quit)()
	_, err := p.Run()
	return err
}
