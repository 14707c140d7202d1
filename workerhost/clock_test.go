package workerhost

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestServerClock(t *testing.T) {
	start := time.Now()
	server := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	sec := func(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
	for name, c := range map[string]struct {
		passed          float64 // seconds from the first answer to the second, by the server's clock
		asked, answered float64 // when the second answer was requested and arrived, in seconds after the request of the first, which took 1 s
		want            float64
	}{
		"same pace":                    {5, 5, 5.01, 0},
		"slow answers":                 {11, 5, 12, 0},
		"forward within the bounds":    {5.4, 5, 5, 0},
		"forward by a second":          {6, 5, 5, 1},
		"forward by a day":             {86405, 5, 5, 86400},
		"back within the bounds":       {3.6, 5, 5, 0},
		"back by a second":             {3, 5, 5, -1},
		"back by a day":                {-86396, 5, 5, -86400},
		"a step hidden by the network": {8, 5, 9, 0},
	} {
		t.Run(name, func(t *testing.T) {
			var clock serverClock
			require.Zero(t, clock.read(server, start, start.Add(sec(1))), "nothing to compare with")
			got := clock.read(server.Add(sec(c.passed)), start.Add(sec(c.asked)), start.Add(sec(c.answered)))
			require.InDelta(t, c.want, got.Seconds(), 0.001)
			require.Zero(t, clock.read(server.Add(sec(c.passed+5)), start.Add(sec(c.asked+5)), start.Add(sec(c.answered+5))), "reported once")
		})
	}
	t.Run("this machine slept", func(t *testing.T) {
		var clock serverClock
		clock.read(server, start, start)
		woken := wall(start).Add(time.Hour) // without the monotonic clock reading, so that Sub uses the wall clock
		require.Zero(t, clock.read(server.Add(time.Hour), woken, woken))
	})
}
