package workerhost

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// An error that many loops have is one log line, and then one line per minute.
func TestQuietLog(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	q := quieten(slog.New(slog.NewTextHandler(&out, nil)))
	loops := []*slog.Logger{q.With("loop", "a"), q.With("loop", "b").WithGroup("g")}
	for i := range 50 {
		for _, log := range loops {
			log.Warn("tick failed", "error", errors.New("read tcp 127.0.0.1:4000"+string(rune('0'+i%10))+": server_login_retry").Error())
		}
	}
	lines := func() []string { return strings.Split(strings.TrimSpace(out.String()), "\n") }
	require.Len(t, lines(), 1, "the port of this end differs")
	q.Warn("tick failed", "error", "another")
	q.Warn("claim failed", "error", "another")
	q.Warn("lease lost", "job_id", 1)
	q.Warn("lease lost", "job_id", 1)
	q.Error("tick failed", "error", "another")
	require.Len(t, lines(), 6, "another error, another message, none, and what is no warning")

	r := slog.NewRecord(time.Now().Add(sayAgain), slog.LevelWarn, "tick failed", 0)
	r.Add("error", "read tcp 127.0.0.1:40001: server_login_retry")
	require.NoError(t, q.Handler().Handle(t.Context(), r))
	require.Contains(t, lines()[6], "repeated=99")
}
