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
	// SnapshotAt returns the stored snapshot that is steps snapshots after the
	// one of time at, or before it if steps is negative. first is the time of
	// the oldest stored snapshot. A zero TakenAt means that no such snapshot is
	// stored.
	SnapshotAt(ctx context.Context, at time.Time, steps int) (s queue.Snapshot, first time.Time, err error)
	List(ctx context.Context, q queue.Query) (queue.Page, error)
	// Actions returns the registry of all actions.
	Actions() queue.Registry
	Plan(ctx context.Context, r queue.Request) (queue.Plan, error)
	Apply(ctx context.Context, p queue.Plan) (queue.Result, error)
	// Changes signals that something changed in the database. It may be nil, or be closed
	// when no more signals come.
	Changes() <-chan struct{}
	// Link returns the state of the connection, from memory.
	Link() queue.Link
}

// Host is the worker host of this process. A nil Host means that this process cannot run
// one. An empty loop name means all loops.
type Host interface {
	Status() queue.HostStatus
	Start(loop string) error
	Drain(loop string) error
	Stop(loop string) error
	// Shutdown drains all loops within the grace time, then hands back the remaining work.
	Shutdown(ctx context.Context) error
}
