package queue

import (
	"testing"
	"time"
	_ "time/tzdata" // the time zones

	"github.com/stretchr/testify/require"
)

func TestParseWhen(t *testing.T) {
	t.Parallel()
	cet := time.FixedZone("CET", 3600)
	now := time.Date(2026, 11, 22, 2, 30, 0, 0, cet)
	for text, want := range map[string]string{
		"02:00": "2026-11-22T01:00:00Z", "02:00:05": "2026-11-22T01:00:05Z", "23:00": "2026-11-21T22:00:00Z", "02:30": "2026-11-22T01:30:00Z",
		"3h": "2026-11-21T22:30:00Z", "-90m": "2026-11-22T00:00:00Z", "2d": "2026-11-20T01:30:00Z",
		"2026-11-20": "2026-11-19T23:00:00Z", "2026-11-20T10:00:00Z": "2026-11-20T10:00:00Z", "2026-11-20 10:00": "2026-11-20T09:00:00Z",
		"2026-11-20T10:00:00.5+02:00": "2026-11-20T08:00:00.5Z",
	} {
		at, ok := ParseWhen(text, now, cet)
		require.True(t, ok, text)
		require.Equal(t, want, at.UTC().Format(time.RFC3339Nano), text)
	}
	for _, text := range []string{"", "soon", "25:00", "3", "-", "2026-13-01", "02:00pm", "h"} {
		_, ok := ParseWhen(text, now, cet)
		require.False(t, ok, text)
	}
}

// A time of the hour that the clock shows twice, or skips, in zones on both sides of UTC.
func TestParseWhenTheClockIsSet(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ zone, text, now, want string }{
		{"Europe/Berlin", "02:30", "2026-10-25T00:40:00Z", "2026-10-25T00:30:00Z"}, // 02:40, the first time
		{"Europe/Berlin", "02:30", "2026-10-25T01:10:00Z", "2026-10-25T00:30:00Z"}, // 02:10, the second time
		{"Europe/Berlin", "02:30", "2026-10-25T01:40:00Z", "2026-10-25T01:30:00Z"},
		{"Europe/Berlin", "02:30", "2026-10-25T09:00:00Z", "2026-10-25T01:30:00Z"},
		{"Europe/Berlin", "02:30", "2026-10-26T00:00:00Z", "2026-10-25T01:30:00Z"}, // 01:00 on the next day
		{"Europe/Berlin", "01:30", "2026-10-25T01:40:00Z", "2026-10-24T23:30:00Z"},
		{"Europe/Berlin", "03:00", "2026-10-25T02:40:00Z", "2026-10-25T02:00:00Z"},
		{"America/New_York", "01:30", "2026-11-01T05:40:00Z", "2026-11-01T05:30:00Z"},
		{"America/New_York", "01:30", "2026-11-01T06:10:00Z", "2026-11-01T05:30:00Z"},
		{"America/New_York", "01:30", "2026-11-01T06:40:00Z", "2026-11-01T06:30:00Z"},
		{"America/New_York", "01:30", "2026-11-01T15:00:00Z", "2026-11-01T06:30:00Z"},
		{"America/New_York", "02:00", "2026-11-01T15:00:00Z", "2026-11-01T07:00:00Z"},
		{"Australia/Lord_Howe", "01:45", "2026-04-04T15:20:00Z", "2026-04-04T15:15:00Z"}, // half an hour
		{"America/New_York", "03:30", "2026-03-08T15:00:00Z", "2026-03-08T07:30:00Z"},
		{"America/New_York", "01:30", "2026-03-08T15:00:00Z", "2026-03-08T06:30:00Z"},
	} {
		loc, err := time.LoadLocation(c.zone)
		require.NoError(t, err)
		now, err := time.Parse(time.RFC3339, c.now)
		require.NoError(t, err)
		at, ok := ParseWhen(c.text, now, loc)
		require.True(t, ok)
		require.Equal(t, c.want, at.UTC().Format(time.RFC3339), c)
	}
}
