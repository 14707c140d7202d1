package tui

import (
	"io"
	"time"

	"github.com/qtop/qtop/pgclient/queue"
)

// Options are the settings of a console. Unless a field says otherwise, its
// zero value means the default.
type Options struct {
	Profile     string // name of the profile, shown in the header
	Production  string // name of the production database, used until the database itself answers; "": not production
	ReadOnly    bool
	Actor       string // the operator's name for the audit
	ASCII       bool
	NoColor     bool
	Accessible  bool   // print plain lines instead of a screen (function accessible)
	Theme       string // auto, dark, light, mono
	Refresh     time.Duration
	UTC         bool
	Clipboard   string // off, never or none: never send OSC 52, the escape sequence that sets the clipboard
	StartPane   queue.PaneID
	StartFilter string
	Now         func() time.Time
	Version     string
	Demo        string // status line of the demo; "": not a demo
	DemoDSN     string // of the login of the demo's console, for the verbs in another shell
	Mouse       bool
	OwnLogin    bool // the worker host of this process has another login than the console
	// AnswerActor receives the name that the operator types if Actor is a
	// shared account; it is called once. nil: the console does not ask for a
	// name.
	AnswerActor func(string)
	// Save creates the file name, lets write fill it, and returns the path of
	// the file. It must refuse a file that exists. nil: the console cannot
	// export.
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
