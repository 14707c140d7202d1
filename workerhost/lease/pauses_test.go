package lease

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// While a host lacks something, the pauses of a lane double up to their bound, and no other lane is paused. Once
// work has begun they are short again, but a pause that lasts is not shortened.
func TestPausesDouble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p Pauses[string, int]
		require.Empty(t, p.Paused())
		p.Began("a", 1)
		for _, want := range []time.Duration{250 * time.Millisecond, 500 * time.Millisecond, time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second, 30 * time.Second, 30 * time.Second} {
			for work := range 3 { // of one claim: they make one pause
				require.True(t, p.HandBack("a", work))
			}
			require.Equal(t, []string{"a"}, p.Paused())
			time.Sleep(want - 1)
			require.Equal(t, []string{"a"}, p.Paused())
			time.Sleep(time.Nanosecond)
			require.Empty(t, p.Paused(), want)
		}
		require.True(t, p.HandBack("a", 1))
		p.Began("a", 2)
		time.Sleep(maxClaimPause - 1)
		require.Equal(t, []string{"a"}, p.Paused())
		time.Sleep(time.Nanosecond)
		require.True(t, p.HandBack("a", 1))
		time.Sleep(minClaimPause)
		require.Empty(t, p.Paused())
	})
}

// Work that is handed back for an hour counts as an attempt, and the next hour begins; that of other work does not.
func TestHandingBackEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p Pauses[string, int]
		for range 2 {
			for began := time.Now(); time.Since(began) < handBackFor; time.Sleep(time.Minute) {
				require.True(t, p.HandBack("a", 1))
				p.Began("a", 2)
			}
			require.True(t, p.HandBack("a", 3))
			require.False(t, p.HandBack("a", 1), "it goes round for ever")
			p.Began("a", 3)
		}
		require.True(t, p.HandBack("a", 1))
		time.Sleep(handBackFor / 2)
		p.Began("a", 1)
		require.True(t, p.HandBack("a", 1))
		time.Sleep(handBackFor / 2)
		require.True(t, p.HandBack("a", 1), "counted from before it was begun")
	})
}

// What is handed back once and done by other hosts is forgotten.
func TestPausesForget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p Pauses[int, int]
		for i := range 10 {
			require.True(t, p.HandBack(i, i))
		}
		time.Sleep(2 * handBackFor)
		require.True(t, p.HandBack(1, 1))
		require.Len(t, p.lanes, 1)
		require.Len(t, p.works, 1)
	})
}
