package tui

// This file is the way in: options, the model and the program around it.

import (
	"context"
	"io"
	"os"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/qtop/qtop/pgclient/queue"
)

// Options are the settings of a console.
type Options struct {
	Profile     string // the name in the header; of a production profile the word that unlocks it
	Production  string // non-empty: this is production, and this is the name that is typed
	ReadOnly    bool
	Actor       string // who the audit rows name
	ASCII       bool
	NoColor     bool
	Accessible  bool   // plain lines instead of a screen
	Theme       string // auto, dark, light, mono
	Refresh     time.Duration
	UTC         bool
	Clipboard   string // off, never or none forbid OSC 52
	StartPane   queue.PaneID
	StartFilter string
	Now         func() time.Time
	Version     string
	Demo        string // one line that says that this is the demo
	Mouse       bool
	// AnswerActor is told the name that was asked for, once, where Actor is a
	// shared account's.
	AnswerActor func(string)
	// Save lets write fill a new file of this name, and gives its path; a file that
	// exists it refuses. nil: exports are off.
	Save func(name string, write func(io.Writer) error) (path string, err error)
}

func (o Options) withDefaults() Options {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Refresh <= 0 {
		o.Refresh = time.Second
	}
	if o.StartPane == "" {
		o.StartPane = home()
	}
	return o
}

// New makes the model; Run runs it.
func New(s Store, h Host, o Options) tea.Model { return newRoot(context.Background(), s, h, o) }

// Run shows the console until it is quit or ctx ends. An end by ctx is no error:
// whoever cancels it drains the loops.
func Run(ctx context.Context, s Store, h Host, o Options, opts ...tea.ProgramOption) error {
	if o.Accessible {
		return accessible(ctx, s, o.withDefaults(), os.Stdout)
	}
	m := newRoot(ctx, s, h, o)
	defer m.endExport()
	defer m.cancel()
	// Whoever runs the console answers signals, by ending ctx. It ends by Quit: a
	// program that is killed closes its input under the goroutine that reads it.
	p := tea.NewProgram(m, append([]tea.ProgramOption{tea.WithoutSignalHandler()}, opts...)...)
	defer context.AfterFunc(ctx, p.Quit)()
	_, err := p.Run()
	return err
}
