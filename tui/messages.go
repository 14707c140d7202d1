package tui

// Declares every message that the program sends itself.

import (
	"time"

	"github.com/qtop/qtop/pgclient/queue"
)

type (
	// heartbeatMsg comes once a second: clock, ages, countdowns, refresh.
	heartbeatMsg struct{}
	// dueMsg starts a refresh that was delayed after a hint.
	dueMsg struct{}
	// hintMsg says that something changed in the database; open is false when the channel was closed.
	hintMsg struct{ open bool }
	// polledMsg is the state of link and host.
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
		first    time.Time // when the oldest stored one was taken
		err      error
	}
	// sessionMsg is the login with its rights.
	sessionMsg struct {
		session *queue.Session
		err     error
	}
	// pageMsg is a page of a list, for the level that waits for this read.
	pageMsg struct {
		read int
		more bool // to be appended
		page queue.Page
		err  error
	}
	// plannedMsg and appliedMsg are the answers for a dialog, by its serial.
	plannedMsg struct {
		dialog int
		plan   queue.Plan
		err    error
	}
	appliedMsg struct {
		dialog int
		result queue.Result
		err    error
	}
	// armMsg redraws a dialog that now accepts answers.
	armMsg struct{}
	// savedMsg is the end of an export.
	savedMsg struct {
		of        *exporting
		done      queue.Exported
		path      string
		err       error
		cancelled bool
	}
	// drainedMsg says that the host has shut down.
	drainedMsg struct{ err error }
	// openedMsg is the first message after the start.
	openedMsg struct{}
)
