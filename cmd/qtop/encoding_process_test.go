package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/pgtest"
)

// The console, a worker, migrate and a verb refuse a database that is not UTF-8, in
// one line each.
func TestOtherEncodingsInOneLine(t *testing.T) {
	t.Parallel()
	db := pgtest.Encoded(t, "LATIN1")
	for _, verb := range []string{"", "--accessible", "worker", "migrate up", "status"} {
		out, err := qtop(t, db.DSN(""), strings.Fields(verb)...).CombinedOutput()
		require.Error(t, err, verb)
		var said []string
		for line := range strings.Lines(string(out)) {
			if strings.HasPrefix(line, "qtop: ") {
				said = append(said, line)
			}
		}
		require.Len(t, said, 1, "%q: %s", verb, out)
		require.Contains(t, said[0], "the encoding of the database is LATIN1, and qtop needs UTF8", verb)
		require.Contains(t, said[0], "createdb -E UTF8", verb)
	}
	out, err := qtop(t, db.DSN(""), "doctor").CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "LATIN1")
	_, err = qtop(t, db.DSN(""), "migrate", "status").CombinedOutput()
	require.NoError(t, err, "whoever only looks may")
}
