package workerhost

import (
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/queue"
)

// A domain may be named webhook: its signals are sent on the channel of webhooks, and wake the loops
// that they wake in another domain.
func TestSignalsOfADomainNamedWebhook(t *testing.T) {
	t.Parallel()
	delayed, none := new(int64(1)), new(int64(0))
	for _, c := range []struct {
		what    string
		channel string
		layer   string
		hint    string
		delayed *int64
		want    []string
	}{
		{"jobs", "shop", "job", loopJobs, none, []string{loopJobs}},
		{"jobs", "webhook", "job", loopJobs, none, []string{loopJobs}},
		{"delayed jobs", "shop", "job", loopJobs, delayed, []string{loopJobs, loopDue}},
		{"delayed jobs", "webhook", "job", loopJobs, delayed, []string{loopJobs, loopDue}},
		{"a notifier", "shop", "job", "", nil, []string{loopJobs, loopDue}},
		{"a notifier", "webhook", "job", "", nil, []string{loopJobs, loopDue, loopWebhook}},
		{"a job subscription", "webhook", "subscription", loopJobs, nil, []string{loopJobs, loopDue}},
		{"an event", "shop", "event", "", nil, []string{loopRoutes}},
		{"an event", "webhook", "event", "", nil, []string{loopRoutes, loopRouter}},
		{"an event with a worker", "webhook", "event", loopRoutes, nil, []string{loopRoutes}},
		{"a doorbell", "shop", "doorbell", "", nil, []string{loopRoutes, loopJobs, loopDue}},
		{"a doorbell", "webhook", "doorbell", "", nil, []string{loopRoutes, loopJobs, loopDue, loopRouter, loopOrchestrator, loopWebhook}},
		{"an event of webhooks", "webhook", "event", loopRouter, nil, []string{loopRouter}},
		{"a saga", "webhook", "saga", loopOrchestrator, nil, []string{loopOrchestrator}},
		{"a webhook job", "webhook", "job", loopWebhook, nil, []string{loopWebhook}},
		{"a finished webhook job", "webhook", "job", loopOrchestrator, nil, []string{loopOrchestrator}},
		{"a notification", "elsewhere", "job", loopJobs, nil, nil},
	} {
		s := &signals{loops: newLoops(slog.New(slog.DiscardHandler))}
		channel := "queue_wake_" + c.channel
		if c.channel == "elsewhere" {
			channel = c.channel
		}
		s.handle(queue.Wake{At: time.Now(), Channel: queue.Clean(channel), Layer: queue.Clean(c.layer), Hint: queue.Clean(c.hint), Delayed: c.delayed})
		var got []string
		for _, l := range s.loops {
			select {
			case <-l.Kicked():
				got = append(got, l.Name)
			default:
			}
		}
		require.ElementsMatch(t, c.want, got, "%s in %s", c.what, c.channel)
	}
}

// A signal makes each loop check once, also a loop that is waiting and takes the first kick at once.
func TestASignalMakesALoopCheckOnce(t *testing.T) {
	t.Parallel()
	for _, layer := range []string{"job", "subscription", "executor", "doorbell"} {
		synctest.Test(t, func(t *testing.T) {
			s := &signals{loops: newLoops(slog.New(slog.DiscardHandler))}
			checks, ended := make([]atomic.Int64, len(s.loops)), make(chan struct{})
			defer close(ended)
			for i, l := range s.loops {
				go func() {
					for {
						select {
						case <-l.Kicked():
							checks[i].Add(1)
						case <-ended:
							return
						}
					}
				}()
			}
			synctest.Wait()
			s.handle(queue.Wake{At: time.Now(), Channel: queue.Clean("queue_wake_shop"), Layer: queue.Clean(layer), Hint: queue.Clean(loopJobs), Delayed: new(int64(1))})
			synctest.Wait()
			for i, l := range s.loops {
				require.LessOrEqual(t, checks[i].Load(), int64(1), "%s: %s", layer, l.Name)
				require.True(t, checks[i].Load() == 1 || l.Name != loopJobs, layer)
			}
		})
	}
}
