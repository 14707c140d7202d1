package tui

import (
	"io"
	"time"

	"github.com/qtop/qtop/pgclient/queue"
)

// Options are the settings of a console.
type Options struct {
	Profile     string // the name in the header
	Production  string // production profile, used until the database answers; "": not production
	ReadOnly    bool
	Actor       string // the name in the audit
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
	Demo        string // status line of the demo; "": not a demo
	Mouse       bool
	OwnLogin    bool // the worker host of this process has another login than the console
	// AnswerActor receives the name that the operator types, once, if Actor is
	// a shared account. nil: the console does not ask for a name.
	AnswerActor func(string)
	// Save creates the file name, lets write fill it, and returns its path. It refuses a
	// file that exists. nil: exports are off.
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
