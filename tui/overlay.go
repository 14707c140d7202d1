package tui

import (
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
)

// overlay is one of them. A nil overlay from update closes it.
type overlay interface {
	update(msg tea.Msg, at place) (overlay, effect)
	lines(at place) []string
}

// place is where and when an overlay is.
type place struct {
	now  time.Time // the operator's clock
	env  views.Env
	size views.Size
}

// pressed is the key that a message is; empty: it is none.
func pressed(msg tea.Msg) string {
	if k, ok := msg.(tea.KeyPressMsg); ok {
		return k.String()
	}
	return ""
}

// effect is what an overlay wants done; nil is nothing.
type effect any

type (
	effOpen  struct{ pane queue.PaneID }
	effSort  struct{ index int }
	effPlan  struct{ dialog *dialog }
	effApply struct{ dialog *dialog }
	effNamed struct {
		name   string
		action queue.Action
		req    queue.Request
	}
	effLeave struct{ how leaveHow }
)
