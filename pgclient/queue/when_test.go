package queue

import (
	"testing"
	"time"

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
