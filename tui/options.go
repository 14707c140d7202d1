package tui

import (
	"io"
	"time"

	"github.com/qtop/qtop/pgclient/queue"
)

// Options are the settings of a console.
type Options struct {
	Profile     string // the name in the header
	Production  string // non-empty: the profile says that this is production; typed until the database has said its name
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
