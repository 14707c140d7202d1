package tui

import (
	"context"
	"strings"
	"sync/atomic"
	"time"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
)

// leaveFor is how long a quit waits for a cancelled export to remove what it wrote.
const leaveFor = 2 * time.Second

// exporting is the export that runs.
type exporting struct {
	list   string
	of     string          // how many rows there will be, where that is known
	rows   atomic.Int64    // written so far; the command counts, the screen looks
	ctx    context.Context //nolint:containedctx // of this one command; esc ends it
	cancel context.CancelFunc
	done   chan struct{}
}

// lead is what stands before the name of the file.
func (p prompt) lead() string {
	return "export " + queue.Choose(p.of != "", p.of+" of ", "") + p.export.List.Name + " to "
}

// nextFormat is the name with the end of the format after its own.
func nextFormat(name string) string {
	ends := []string{".csv", ".json", ".jsonl"}
	for i, end := range ends {
		if stem, ok := strings.CutSuffix(name, end); ok {
			return stem + ends[(i+1)%len(ends)]
		}
	}
	return name + ends[0]
}

// status is how far the export is.
func (e *exporting) status(ellipsis string) string {
	return "exporting " + e.list + ellipsis + " " + views.Count(e.rows.Load()) + queue.Choose(e.of != "", " of "+e.of, "") + " rows; esc cancels"
}

// end waits until a cancelled export has removed what it wrote.
func (e *exporting) end() {
	if e == nil {
		return
	}
	select {
	case <-e.done:
	case <-time.After(leaveFor):
	}
}
