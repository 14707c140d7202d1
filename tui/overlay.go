package tui

import (
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
)

// overlay is a dialog, menu or help above the pane: a small state machine that
// never touches the model. update returns the overlay to show next (nil closes
// this one) and an effect, what the root shall do.
type overlay interface {
	update(msg tea.Msg, at overlayContext) (overlay, effect)
	lines(at overlayContext) []string
}

// overlayContext is what an overlay knows: the time, and the theme and size to
// draw with.
type overlayContext struct {
	now  time.Time // the operator's clock
	env  views.Env
	size views.Size
}

// pressed returns the name of the pressed key, or "" if the message is not a
// key press.
func pressed(msg tea.Msg) string {
	if k, ok := msg.(tea.KeyPressMsg); ok {
		return k.String()
	}
	return ""
}

// effect is what an overlay asks the root to do (root.perform); nil: nothing.
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
