package main

import (
	"bytes"
	"errors"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/pgtest"
	"github.com/qtop/qtop/pgclient/schema"
)

// PostgreSQL has times such as infinity and years before Christ. No verb that
// reads fails because of such a time in a row.
func TestVerbsWithOddTimes(t *testing.T) {
	t.Parallel()
	for _, value := range []string{"-infinity", "4713-01-01 BC", "294276-12-31", "infinity"} {
		t.Run(value, func(t *testing.T) {
			t.Parallel()
			db := pgtest.Released(t)
			require.NoError(t, schema.Up(t.Context(), db.DSN(""), nil))
			conn := db.Conn(t, "")
			pgtest.SetTimes(t, conn, pgtest.TimeColumns(t, conn), value, false)
			for _, verb := range []string{
				"status", "health", "alerts", "executors", "hosts", "dlq", "dlq-groups", "flags", "webhooks", "notifications", "why", "audit", "queues",
				"scheduler", "subscriptions", "ops", "route list", "consumer list", "doctor", "report --since 3h", "export jobs", "export executors", "export audit",
			} {
				for _, output := range []string{"table", "json"} {
					if strings.HasPrefix(verb, "export") && output == "table" {
						continue
					}
					if strings.HasPrefix(verb, "report") && output == "table" {
						output = "markdown"
					}
					cmd := qtop(t, db.DSN(""), append(strings.Fields(verb), "--output", output)...)
					var out, errs bytes.Buffer
					cmd.Stdout, cmd.Stderr = &out, &errs
					err := cmd.Run()
					var exit *exec.ExitError
					if errors.As(err, &exit) && (exit.ExitCode() == exitCritical || verb == "doctor") {
						err = nil // exit code 1 or 2 here reports a finding, not an error
					}
					require.NoError(t, err, "%s %s: %s", verb, output, &errs)
					require.NotContains(t, errs.String(), "infinite", verb)
					require.NotEmpty(t, out.String(), verb)
				}
			}
		})
	}
}
