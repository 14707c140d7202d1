package tui

import (
	"cmp"
	"context"
	"strings"
	"sync/atomic"
	"time"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
)

// cleanupWait is how long quitting waits for a cancelled export to remove its file.
const cleanupWait = 2 * time.Second

// exporting is the state of the running export; a console runs at most one
// export at a time.
type exporting struct {
	list   string
	of     string          // the expected number of rows, for the status line; "": not known
	rows   atomic.Int64    // rows written so far; the status line shows them
	ctx    context.Context //nolint:containedctx // ends when the operator cancels the export with esc
	cancel context.CancelFunc
	done   chan struct{}
}

// lead returns the text before the file name in the input line, such as
// "export 12 of audit to ".
func (p prompt) lead() string {
	return "export " + queue.Choose(p.of != "", p.of+" of ", "") + p.export.List.Name + " to "
}

// nextFormat returns the file name with the extension of the next export
// format.
func nextFormat(name string) string {
	ends := []string{".csv", ".json", ".jsonl"}
	for i, end := range ends {
		if stem, ok := strings.CutSuffix(name, end); ok {
			return stem + ends[(i+1)%len(ends)]
		}
	}
	return name + ends[0]
}

// status returns the progress of the export as one line.
func (e *exporting) status(ellipsis string) string {
	written := views.Count(e.rows.Load())
	rows := queue.Choose(cmp.Or(e.of, written) == "1", " row", " rows")
	return "exporting " + e.list + ellipsis + " " + written + queue.Choose(e.of != "", " of "+e.of, "") + rows + "; esc cancels"
}

// end cancels the export and waits until it has removed its incomplete file,
// at most cleanupWait. If e is nil, no export runs and end does nothing.
func (e *exporting) end() {
	if e == nil {
		return
	}
	select {
	case <-e.done:
	case <-time.After(cleanupWait):
	}
}
