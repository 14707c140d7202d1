// Package tui is the console: one Bubble Tea program over the pictures that
// package views draws.
//
// One root model holds everything; panes are values in it, overlays are small
// state machines that answer with an effect, and the root alone carries effects
// out. Nothing in Update or View ever waits: every call of the Store or the Host
// is a command, with a deadline.
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
