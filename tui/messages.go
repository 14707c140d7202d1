package tui

// This file is every message that the program sends itself.

import (
	"time"

	"github.com/qtop/qtop/pgclient/queue"
)

type (
	// beatMsg is the heartbeat of the screen: clock, ages, countdowns, refresh.
	beatMsg struct{}
	// dueMsg asks for a refresh that a hint had to wait for.
	dueMsg struct{}
	// hintMsg: something changed in the database.
	hintMsg struct{ open bool }
	// polledMsg is what memory says of link and host.
	polledMsg struct {
		link queue.Link
		host *queue.HostStatus
	}
	// pictureMsg is a refresh that came back.
	pictureMsg struct {
		picture queue.Snapshot
		err     error
		took    time.Duration
	}
	// pastMsg is a kept picture that came back.
	pastMsg struct {
		trip    int
		steps   int
		picture queue.Snapshot
		first   time.Time // when the oldest one was taken
		err     error
	}
	// sessionMsg says who this login is and what it may do.
	sessionMsg struct {
		session *queue.Session
		err     error
	}
	// pageMsg is a list that came back, for the level whose read this is.
	pageMsg struct {
		read int
		more bool // to be appended
		page queue.Page
		err  error
	}
	// plannedMsg and appliedMsg answer a dialog.
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
	// armMsg redraws a dialog that now takes answers.
	armMsg struct{}
	// savedMsg is the end of an export.
	savedMsg struct {
		of        *exporting
		done      queue.Exported
		path      string
		err       error
		cancelled bool
	}
	// drainedMsg: the host has shut down.
	drainedMsg struct{ err error }
	// openedMsg is the first message of all.
	openedMsg struct{}
)
