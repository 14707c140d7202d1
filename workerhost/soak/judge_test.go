package main

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestJudge checks that a figure that grows without bound is found, also among noise, sawtooth
// curves and kills; and that a figure that settles or falls is not reported.
func TestJudge(t *testing.T) {
	t.Parallel()
	const mib, hour = 1 << 20, 3600.0
	for _, c := range []struct {
		name     string
		f        func(at float64) float64
		byDesign bool
		grows    bool
	}{
		{name: "flat", f: func(float64) float64 { return 60 * mib }},
		{name: "a leak of 20 MiB an hour", f: func(at float64) float64 { return 60*mib + at/hour*20*mib }, grows: true},
		{name: "less than the floor", f: func(at float64) float64 { return 4*mib + at/hour*6*mib }},
		{name: "teeth of vacuum", f: func(at float64) float64 { return 20*mib + float64(int(at)%120)/120*40*mib }},
		{name: "teeth on a slope", f: func(at float64) float64 { return 20*mib + float64(int(at)%120)/120*40*mib + at/hour*60*mib }, grows: true},
		{name: "fills in the first ten minutes", f: func(at float64) float64 { return min(at/600, 1) * 200 * mib }},
		{name: "comes to rest in the middle", f: func(at float64) float64 { return min(at/2000, 1) * 200 * mib }},
		{name: "a host that begins anew each ten minutes", f: func(at float64) float64 { return 30*mib + float64(int(at)%600)/600*30*mib }},
		{name: "falls", f: func(at float64) float64 { return 200*mib - at/hour*100*mib }},
		{name: "rows of history", f: func(at float64) float64 { return at / hour * 500 * mib }, byDesign: true},
		{name: "history that costs more and more", f: func(at float64) float64 { return at / hour * at / hour * 500 * mib }, byDesign: true, grows: true},
	} {
		rnd := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // random numbers for a test, not for secrets
		var points []point
		for at := 0.0; at <= hour; at += 15 {
			points = append(points, point{at, c.f(at) + rnd.Float64()*2*mib})
		}
		require.Equal(t, c.grows, judge(points, hour, 8*mib, c.byDesign).grows, c.name)
	}
}

// TestLedger checks the counts of lost work, of work that was refused once, and of work that was
// done twice, with and without a kill in between.
func TestLedger(t *testing.T) {
	t.Parallel()
	l := newLedger()
	for n := 1; n <= 4; n++ {
		l.tell("job", n, nil)
	}
	l.tell("job", oneInAHundred, nil)
	require.True(t, l.see("job", 1))
	require.True(t, l.see("job", 2))
	require.True(t, l.see("job", 2)) // before the kill
	require.True(t, l.see("job", 3))
	sent := time.Now()
	require.True(t, l.see("job", 6)) // read by the receiver while its host was killed
	l.killed(sent, time.Now())
	l.killed(sent.Add(-time.Hour), sent.Add(-time.Hour))
	require.True(t, l.see("job", 3))
	require.True(t, l.see("job", 6))
	l.kinds["job"].seen[5] = time.Now().Add(readWithin + time.Second) // long after the kill
	require.True(t, l.see("job", 5))
	require.False(t, l.see("job", oneInAHundred))
	r := l.result("job")
	require.Equal(t, []int{4, oneInAHundred}, r.lost)
	require.Equal(t, 2, r.traced)
	require.Len(t, r.doubled, 2)
	require.Equal(t, []int{2, 5}, []int{r.doubled[0].n, r.doubled[1].n})
	require.True(t, l.see("job", oneInAHundred))
	require.Equal(t, []int{4}, l.result("job").lost)
	require.Equal(t, 5, l.result("job").acknowledged)
}
