package main

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/pgtest"
	"github.com/qtop/qtop/pgclient/queue"
)

// The first frame is drawn before the database answers. On a machine that is
// not busy it appears within a second of the start, although nothing answers
// at all.
func TestFirstFrameWaitsForNothing(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	path := pgtest.NewPath(t, pgtest.TCP(t, db.Server))
	path.Hole(true)
	dsn := pgtest.OverTCP(t, db.DSN(operator(t, db)), path.Addr())
	first := func() time.Duration {
		start := time.Now()
		s := onScreen(t, 120, 40, program(t, filepath.Join(built, "qtop"), dsn))
		s.until("Waiting for the first snapshot")
		defer func() {
			require.NoError(t, s.cmd.Process.Kill())
			<-s.exit
		}()
		return time.Since(start)
	}
	// On a busy machine a start may take longer, so the test tries again until
	// one is quick enough.
	for deadline := time.Now().Add(patience); first() > time.Second; {
		require.True(t, time.Now().Before(deadline), "each first frame took more than a second")
	}
}

// A database that can never serve a console ends the screen with one line, even
// if its answer arrives after the first frame.
func TestScreenEndsForAnotherEncoding(t *testing.T) {
	t.Parallel()
	db := pgtest.Encoded(t, "LATIN1")
	path := pgtest.NewPath(t, pgtest.TCP(t, db.Server))
	path.Delay(300 * time.Millisecond)
	for what, dsn := range map[string]string{"at once": db.DSN(""), "late": pgtest.OverTCP(t, db.DSN(""), path.Addr())} {
		s := onScreen(t, 120, 40, program(t, filepath.Join(built, "qtop"), dsn))
		var end error
		select {
		case end = <-s.exit:
		case <-time.After(patience):
			t.Fatalf("%s: the program did not end:\n%s", what, s.text())
		}
		var exit *exec.ExitError
		require.ErrorAs(t, end, &exit, what)
		require.Equal(t, int(queue.KindConfig), exit.ExitCode(), what)
		entered := bytes.Contains(s.raw.b, []byte("\x1b[?1049h")) // whether the screen was entered before the answer came: both orders are possible
		before, after, left := bytes.Cut(s.raw.b, []byte("\x1b[?1049l"))
		require.Equal(t, entered, left, "%s: the alternate screen was entered and left", what)
		if !left {
			after = before
		}
		require.Equal(t, 1, strings.Count(string(after), "qtop: "), "%s: %q", what, after)
		require.Contains(t, string(after), "qtop: the encoding of the database is LATIN1, and qtop needs UTF8", what)
		if what == "late" {
			require.True(t, entered, what)
			require.Contains(t, string(s.raw.b), "Waiting for the first snapshot")
		}
	}
}
