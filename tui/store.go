// Package tui is the console: one Bubble Tea program over the pictures that
// package views draws.
//
// A pane is one value, declared in one file (pane_flags.go, level_jobs.go for what
// two of them open) and listed in panes.go: where its rows come from, what enter
// opens, what each key works on. The model is made of parts, each of which knows only
// those below it:
//
//  1. calls asks Store and Host. Each call is a command with a deadline, so nothing in
//     Update or View ever waits.
//  2. shell has the terminal, the picture and when it is read, and who acts.
//  3. deck has the panes: the open level, its cursor, its filter, its one read, which
//     ends when the level is left.
//  4. root has the keys, the line that is typed into, and the overlays: small state
//     machines that answer with an effect, which the root alone carries out.
package tui

import (
	"context"
	"time"

	"github.com/qtop/qtop/pgclient/queue"
)

// Store is what the console reads and acts through.
type Store interface {
	Snapshot(ctx context.Context) (queue.Snapshot, error)
	// SnapshotAt is a picture that was kept, so many steps from a time; first is
	// the time of the oldest one.
	SnapshotAt(ctx context.Context, at time.Time, steps int) (s queue.Snapshot, first time.Time, err error)
	List(ctx context.Context, q queue.Query) (queue.Page, error)
	// Actions is every action that there is.
	Actions() queue.Registry
	Plan(ctx context.Context, r queue.Request) (queue.Plan, error)
	Apply(ctx context.Context, p queue.Plan) (queue.Result, error)
	// Changes hints that something changed. It may be nil; a closed channel is
	// listened to no more.
	Changes() <-chan struct{}
	// Link is the state of the connection; it answers from memory.
	Link() queue.Link
}

// Host is the worker host of this process. A nil Host means that none can run
// here. An empty loop means all of them.
type Host interface {
	Status() queue.HostStatus
	Start(loop string) error
	Drain(loop string) error
	Stop(loop string) error
	// Shutdown drains all loops within the grace time, then hands back what is
	// left.
	Shutdown(ctx context.Context) error
}
