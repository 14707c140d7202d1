// Package tui is the console: one Bubble Tea program that reads through a Store, draws
// with package views, and acts only after a confirmed dialog. Run starts it; Store and
// Host are what the caller provides, Options are its settings.
//
// A pane is one value of type pane, declared in a pane_*.go file and listed in panes.go:
// the source of its rows, the level that enter opens, the targets of each key. A level is one step
// on the path that enter opens; level_*.go declares levels that several panes share.
//
// The model consists of four parts. Each part embeds the previous part and uses only that:
//
//  1. calls calls Store and Host. Each call is a command with a deadline, so Update and
//     View never wait.
//  2. shell holds the terminal, the snapshot with the schedule of its reads (feed), and
//     who acts (identity).
//  3. deck holds the panes: the open level with its cursor, filter and at most one read,
//     which is cancelled when the level is left.
//  4. root holds the keys, the input line and the overlays: state machines that answer
//     a key with an effect, which only the root carries out.
//
// An action goes key → dialog → Store.Plan → preview → Store.Apply → result. The preview
// must be confirmed, and Apply compares the plan with the current rows again.
package tui

import (
	"context"
	"time"

	"github.com/qtop/qtop/pgclient/queue"
)

// Store is what the console reads and acts through.
type Store interface {
	// Snapshot returns the current state. It may be one that was computed for another
	// console, if that is at most maxAge old.
	Snapshot(ctx context.Context, maxAge time.Duration) (queue.Snapshot, error)
	// SnapshotAt returns a stored snapshot: the one that is steps snapshots
	// after the one shown at time at, or before it if steps is negative. first
	// is the time of the oldest stored snapshot. A zero TakenAt means that no
	// such snapshot is stored.
	SnapshotAt(ctx context.Context, at time.Time, steps int) (s queue.Snapshot, first time.Time, err error)
	List(ctx context.Context, q queue.Query) (queue.Page, error)
	// Actions returns the registry of all actions.
	Actions() queue.Registry
	Plan(ctx context.Context, r queue.Request) (queue.Plan, error)
	Apply(ctx context.Context, p queue.Plan) (queue.Result, error)
	// Changes returns the channel of change hints: it receives a value when
	// something in the database changed. It may be nil, and is closed when no
	// more hints come.
	Changes() <-chan struct{}
	// Link returns the state of the database connection, without asking the
	// database.
	Link() queue.Link
}

// Host is the worker host of this process; nil if this process cannot run one.
// In its methods an empty loop name means all loops.
type Host interface {
	Status() queue.HostStatus
	Start(loop string) error
	Drain(loop string) error
	Stop(loop string) error
	// Shutdown drains all loops. Work that has not ended within the grace time
	// is returned to the queue.
	Shutdown(ctx context.Context) error
}
