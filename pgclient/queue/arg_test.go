package queue_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/queue"
)

func TestDuration(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"500ms": 500 * time.Millisecond, "2h30m": 150 * time.Minute, "3d": 72 * time.Hour, "1w": 168 * time.Hour, "0": 0, "1h0m0s": time.Hour, "-1s": -time.Second,
	} {
		got, ok := queue.Duration(text)
		require.True(t, ok, text)
		require.Equal(t, want, got, text)
	}
	for _, text := range []string{"", "1", "soon", "1y", "-1d"} {
		_, ok := queue.Duration(text)
		require.False(t, ok, text)
	}
}

func TestDurationText(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", time.Nanosecond: "1ns", time.Microsecond: "0.000001s", 250 * time.Millisecond: "250ms", 999*time.Millisecond + time.Microsecond: "0.999001s",
		1500 * time.Millisecond: "1.5s", time.Minute: "1m", time.Hour: "1h", 150 * time.Minute: "2h30m", 24 * time.Hour: "1d", 36*time.Hour + time.Second: "1d12h1s",
		-time.Hour: "-1h", -250 * time.Millisecond: "-250ms", -time.Nanosecond: "-1ns", math.MinInt64: "-2562047h47m16.854775808s",
	} {
		require.Equal(t, want, queue.DurationText(d))
		back, ok := queue.Duration(want)
		require.True(t, ok, want)
		require.Equal(t, d, back, want)
	}
}

func TestSeconds(t *testing.T) {
	for text, want := range map[string]int64{
		"90s": 90, "30m": 1800, "2h30m": 9000, "1.5h": 5400, " 1d ": 86400, "1w": 604800, "1d12h": 129600, "3650d": 315360000,
	} {
		got, err := queue.Seconds("--for", text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
	for _, text := range []string{"", "0s", "900ms", "-1h", "1", "1y", "w", "3651d", "30m1h", "1h2h", "999999999999d", "１h", "1h\x1b[2J"} {
		_, err := queue.Seconds("--for", text)
		require.ErrorContains(t, err, "is not a duration from a second to ten years", text)
		require.NotContains(t, err.Error(), "\x1b")
	}
}

// A number has bounds, which infinities and NaN are not within; one word may replace it.
func TestNumbers(t *testing.T) {
	rate := queue.Arg{Name: "per-second", Kind: queue.ArgNumber, Min: 0.00001, Max: 1_000_000, Or: "none", Required: true}
	for _, v := range []string{"none", "20", "0.5", "0.00001", "1e-5", "1000000"} {
		require.NoError(t, rate.Check(v), v)
	}
	plain := rate
	plain.Or = ""
	for _, v := range []string{"NaN", "inf", "-Inf", "-1", "0", "0.000009", "1000001", "None", "20/s", "0x1p4", "0X10", "1_0"} {
		require.ErrorContains(t, rate.Check(v), "is not a number from 0.00001 to 1000000, nor none")
		require.ErrorContains(t, plain.Check(v), "is not a number from 0.00001 to 1000000")
	}
	require.ErrorContains(t, rate.Check(""), "per-second is needed")
	require.Error(t, plain.Check("none"))
}

func TestTexts(t *testing.T) {
	notes := queue.Arg{Name: "notes", Clears: true, Max: 3}
	for _, v := range []string{"", " ", "äöü"} {
		require.NoError(t, notes.Check(v))
	}
	require.EqualError(t, notes.Check("four"), "the notes must have at most 3 characters, not 4 (--notes): shorten it")
	label := queue.Arg{Name: "label", Positional: true, Required: true, Max: 3, Help: "what happened"}
	for _, v := range []string{" ", "four"} {
		require.EqualError(t, label.Check(v), "a label must have 1 to 3 characters (LABEL): what happened")
	}
}

func TestActor(t *testing.T) {
	require.NoError(t, queue.CheckActor(strings.Repeat("ä", 200)))
	for _, name := range []string{"", " "} {
		require.EqualError(t, queue.CheckActor(name), "nobody is named as the actor, and this process has no login name (actor): give --actor NAME or set QTOP_ACTOR")
	}
	require.EqualError(t, queue.CheckActor(strings.Repeat("x", 201)), "the actor has more than 200 characters (actor): shorten it in --actor or QTOP_ACTOR")
}
