package tui

import (
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
)

// overlay is a dialog, menu or help above the pane: a small state machine that answers a
// key with an effect and never touches the model. update returns the overlay to show next;
// nil closes it.
type overlay interface {
	update(msg tea.Msg, at overlayContext) (overlay, effect)
	lines(at overlayContext) []string
}

// overlayContext is the input of an overlay: the time, and the theme and size
// to draw with.
type overlayContext struct {
	now  time.Time // the operator's clock
	env  views.Env
	size views.Size
}

// pressed returns the key of a message, or "" if the message is not a key.
func pressed(msg tea.Msg) string {
	if k, ok := msg.(tea.KeyPressMsg); ok {
		return k.String()
	}
	return ""
}

// effect is what an overlay asks the root to do; nil: nothing.
type effect any

type (
	effOpen  struct{ pane queue.PaneID }
	effSort  struct{ index int }
	effPlan  struct{ dialog *dialog }
	effApply struct{ dialog *dialog }
	effNamed struct {
		name  string
		asked asked
	}
	effShutdown struct{ how shutdownMode }
)
