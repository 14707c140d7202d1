// Tests of fairness: endpoints that hang must not noticeably delay deliveries to the other
// endpoints.
package workerhost_test

import (
	"fmt"
	"net/http"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/workerhost"
)

// crowd is 50 endpoints, each a separate receiver. Some of them can hang.
type crowd struct {
	w       *world
	healthy []*receiver
	hanging []*receiver
	release atomic.Pointer[chan struct{}] // closed to release the requests that hang; nil: no endpoint hangs
}

func newCrowd(w *world, total, stuck int) *crowd {
	c := &crowd{w: w}
	for i := range total {
		if i < stuck {
			c.hanging = append(c.hanging, receive(w.t, func(rw http.ResponseWriter, req *http.Request) {
				if release := c.release.Load(); release != nil {
					hanging(*release)(rw, req)
				}
			}))
			w.subscribe(fmt.Sprintf("hangs.%d", i), c.hanging[i].URL, nil)
			continue
		}
		c.healthy = append(c.healthy, receive(w.t, ok))
		w.subscribe(fmt.Sprintf("fine.%d", i-stuck), c.healthy[i-stuck].URL, nil)
	}
	return c
}

// startDelays sends events to the healthy endpoints at an even rate and returns the time from the
// commit of each event to its arrival. With hang, the other endpoints have a backlog during that
// time and do not respond.
func (c *crowd) startDelays(perSecond int, lasts time.Duration, hang bool) []time.Duration {
	t := c.w.t
	t.Helper()
	if hang {
		release := make(chan struct{})
		c.release.Store(&release)
		defer func() {
			c.release.Store(nil)
			close(release)
			c.w.becomes(0, unfinished)
		}()
	}
	before := make([]int, len(c.hanging))
	for i, r := range c.hanging {
		before[i] = r.count()
		c.w.events(fmt.Sprintf("hangs.%d", i), 20)
	}
	if hang {
		eventually(t, func() bool {
			for i, r := range c.hanging {
				if r.count() == before[i] {
					return false
				}
			}
			return true
		}, "not every endpoint hangs")
	} else {
		c.w.becomes(0, unfinished)
	}
	first := make([]int, len(c.healthy))
	for i, r := range c.healthy {
		first[i] = r.count()
	}
	gap := time.Second / time.Duration(perSecond)
	committed := make([][]time.Time, len(c.healthy))
	tick := time.NewTicker(gap)
	defer tick.Stop()
	n := int(lasts / gap)
	for i := range n {
		<-tick.C
		at := i % len(c.healthy)
		c.w.exec("INSERT INTO public.events (event_type, payload) VALUES ($1, '{}')", fmt.Sprintf("fine.%d", at))
		committed[at] = append(committed[at], time.Now())
	}
	var delays []time.Duration
	for i, r := range c.healthy {
		eventually(t, func() bool { return r.count() == first[i]+len(committed[i]) }, "a healthy endpoint is not served")
		for k, g := range r.all()[first[i]:] {
			delays = append(delays, g.at.Sub(committed[i][k]))
		}
	}
	slices.Sort(delays)
	return delays
}

// With 5 of 50 endpoints hanging, the median start delay of the healthy endpoints is at most
// twice their delay without hanging endpoints, also in a host with fewer slots than the five
// could occupy.
func TestHealthyBesideHanging(t *testing.T) {
	t.Parallel()
	rounds, lasts := 2, 1500*time.Millisecond
	if os.Getenv("QTOP_TEST_FULL") != "" {
		rounds, lasts = 5, 6*time.Second
	}
	for _, concurrency := range []int{64, 16} {
		t.Run(fmt.Sprint(concurrency), func(t *testing.T) {
			w := newWorld(t, "queue.notify.bridge_enabled", "true")
			c := newCrowd(w, 50, 5)
			h := w.run(workerhost.Options{Concurrency: concurrency})
			h.listens()
			c.startDelays(30, lasts, false) // not measured: it opens connections and makes query plans
			// Other load on the machine may slow one half of a round only;
			// then the round is repeated. If hanging endpoints took slots from
			// the others, that would show in every round.
			ratio := 0.0
			for try := range 4 {
				var without, with []time.Duration
				for range rounds {
					without = append(without, c.startDelays(30, lasts, false)...)
					with = append(with, c.startDelays(30, lasts, true)...)
				}
				slices.Sort(without)
				slices.Sort(with)
				a, b := without[len(without)/2], with[len(with)/2]
				ratio = float64(b) / float64(a)
				t.Logf("round %d: median start delay %v without, %v with 5 of 50 hanging, ratio %.2f; p95 %v and %v", try+1,
					a.Round(100*time.Microsecond), b.Round(100*time.Microsecond), ratio,
					without[len(without)*95/100].Round(100*time.Microsecond), with[len(with)*95/100].Round(100*time.Microsecond))
				if ratio <= 2 {
					break
				}
			}
			require.LessOrEqual(t, ratio, 2.0)
		})
	}
}
