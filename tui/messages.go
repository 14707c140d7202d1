package tui

// The messages that the console's own commands send to Update.

import (
	"time"

	"github.com/qtop/qtop/pgclient/queue"
)

type (
	// heartbeatMsg arrives once a second. It updates clock, ages and
	// countdowns, and starts the refreshes that are due.
	heartbeatMsg struct{}
	// dueMsg starts a refresh that a change hint scheduled.
	dueMsg struct{}
	// hintMsg is a change hint: something in the database changed. open is
	// false if the channel of hints was closed and no more come.
	hintMsg struct{ open bool }
	// polledMsg has the state of the database connection and of the host of
	// this process.
	polledMsg struct {
		link queue.Link
		host *queue.HostStatus
	}
	// snapshotMsg is the answer of a refresh.
	snapshotMsg struct {
		snapshot queue.Snapshot
		err      error
		took     time.Duration
	}
	// pastMsg is a stored snapshot; a zero TakenAt means that there is none.
	pastMsg struct {
		visit    int
		steps    int
		snapshot queue.Snapshot
		first    time.Time // when the oldest stored snapshot was taken; zero: none is stored
		err      error
	}
	// sessionMsg is the login with its rights.
	sessionMsg struct {
		session *queue.Session
		err     error
	}
	// pageMsg is a page of a list. Its number is that of the read
	// (list.reading): a level that waits for another read drops it.
	pageMsg struct {
		read int
		more bool // append the page to the loaded rows
		page queue.Page
		err  error
	}
	// plannedMsg, lookedMsg and appliedMsg are answers for a dialog, which has
	// this serial number. lookedMsg is for the names of its targets alone.
	plannedMsg struct {
		dialog int
		plan   queue.Plan
		err    error
	}
	lookedMsg struct {
		dialog int
		plan   queue.Plan
		err    error
	}
	appliedMsg struct {
		dialog int
		result queue.Result
		err    error

		mark, actor string // the label of the mark to set for an action on loops of this process, and who acted; "": none
	}
	// markedMsg is the result of the mark for the action of a dialog.
	markedMsg struct {
		dialog int
		result queue.Result
		err    error
	}
	// armMsg redraws a dialog whose gate (keyGate) has opened, so that it now
	// accepts answers.
	armMsg struct{}
	// savedMsg reports the end of an export.
	savedMsg struct {
		of        *exporting
		done      queue.Exported
		path      string
		err       error
		cancelled bool
	}
	// drainedMsg reports that the host of this process has shut down.
	drainedMsg struct{ err error }
	// openedMsg is the first message after the start.
	openedMsg struct{}
)
