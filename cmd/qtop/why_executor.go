package main

import (
	"context"

	"github.com/qtop/qtop/pgclient"
	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
)

// executorWhy is the answer of why to the name of an executor or tick worker.
type executorWhy struct {
	queue.Executor
	Purpose string   `json:"what_it_does"` // of a tick worker
	Waits   []string `json:"waits"`        // the names of the waiting queues whose first cause names it
	Do      string   `json:"do"`           // the remedy of its silence; empty = it is not silent
}

// showExecutorWhy prints the state of the executor or tick worker of this name and which queues wait because of it. It returns
// false if there is none.
func showExecutorWhy(ctx context.Context, a *app, c *pgclient.Client, name string) (bool, error) {
	s, err := snapshot(ctx, c)
	if err != nil {
		return false, err
	}
	x, ok := queue.Find(s.Executors, func(x queue.Executor) bool { return x.ID.String() == name })
	if !ok {
		return false, nil
	}
	y := executorWhy{Executor: x, Purpose: queue.Purpose(name), Waits: []string{}, Do: x.Cure()}
	waiting := s.CausedBy(name)
	for _, w := range waiting {
		y.Waits = append(y.Waits, w.Name())
	}
	if a.asJSON(y) {
		return true, nil
	}
	beat := "no heartbeat since it was registered " + views.PlainTime(&x.RegisteredAt)
	if x.LastBeatAt != nil {
		beat = "last heartbeat " + views.PlainTime(x.LastBeatAt)
		if x.AgeSeconds != nil {
			beat += ", " + views.PlainAge(*x.AgeSeconds) + " ago"
		}
	}
	a.printf("%s: %s, %s\n", x.ID, x.State, beat)
	acked := x.AckedBy.String()
	switch {
	case acked == "" && x.State == "silent":
		acked = "by nobody: qtop ack " + queue.ShellQuote(name) + " --comment C"
	case acked != "" && x.AckExpiresAt != nil:
		acked = "by " + acked + " until " + views.PlainTime(x.AckExpiresAt)
	case acked != "":
		acked = "by " + acked
	}
	for _, l := range [][2]string{{"what it does", y.Purpose}, {"acknowledged", acked}, {"cure", y.Do}} {
		if l[1] != "" {
			a.printf("%s: %s\n", l[0], l[1])
		}
	}
	if len(y.Waits) == 0 {
		a.printf("it is the first cause of no wait that the snapshot has\n")
	}
	for _, w := range waiting {
		a.printf("waits because of it: %s, %s, the oldest for %s\n", w.Name(), views.PlainBound(w.Waiting, w.WaitingBound), views.PlainAge(w.AgeSeconds))
	}
	return true, nil
}
