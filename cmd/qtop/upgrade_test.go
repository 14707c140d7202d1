package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/pgtest"
	"github.com/qtop/qtop/pgclient/schema"
)

// A host checks whether it fits the installed code of the schema. If the code
// no longer serves it, or is older than it needs, it reports that in one line
// and changes nothing.
func TestWorkerRefusesASchemaItDoesNotFit(t *testing.T) {
	t.Parallel()
	const newer = "UPDATE public.qtop_schema_code SET code = code + 2, serves = code + 1"
	for name, c := range map[string]struct {
		db   *pgtest.DB
		sql  string
		want string
	}{
		"older schema": {pgtest.Released(t), "", "schema version 23, from before code had numbers, is installed; this qtop needs code"},
		"nothing":      {pgtest.Empty(t), "", "qtop is not installed in this database"},
		"newer code":   {pgtest.New(t), newer, "which serves programs of code"},
		"older code":   {pgtest.New(t), "UPDATE public.qtop_schema_code SET code = code - 1, serves = 0", "is installed, this qtop needs code"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn := c.db.Conn(t, "")
			if c.sql != "" {
				_, err := conn.Exec(t.Context(), c.sql)
				require.NoError(t, err)
			}
			var before map[string]string
			columns := pgtest.Columns(t, conn)
			if name != "nothing" {
				before = pgtest.RowSums(t, conn, columns)
			}
			cmd := qtop(t, c.db.DSN(""), "worker", "--host-id", "misfit")
			var errs bytes.Buffer
			cmd.Stderr = &errs
			require.NoError(t, cmd.Start())
			tooLong := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
			require.Error(t, cmd.Wait())
			require.True(t, tooLong.Stop(), "the worker refuses and ends; it did not:\n%s", &errs)
			lines := bytes.Split(bytes.TrimSpace(errs.Bytes()), []byte("\n"))
			last := string(lines[len(lines)-1])
			require.Contains(t, last, c.want)
			require.Contains(t, last, "qtop: ")
			if before != nil {
				require.Equal(t, before, pgtest.RowSums(t, conn, columns), "no host, no lease, no beat")
			}
		})
	}
}

// A verb that reads a database of an older release names the cure in one line before its answer, because
// the answer may lack what only the newer schema has.
func TestReadersWarnOfAnOlderSchema(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	_, err := db.Conn(t, "").Exec(t.Context(), "UPDATE public.qtop_schema_code SET code = code - 1, serves = 0")
	require.NoError(t, err)
	code := schema.Current().Code
	what := fmt.Sprintf("code %d is installed, this qtop needs code %d", code-1, code)
	for _, verb := range []string{"why", "status", "dlq", "audit", "export flags", "report --since 1h"} {
		cmd := qtop(t, db.DSN(""), strings.Fields(verb)...)
		var errs bytes.Buffer
		cmd.Stderr = &errs
		_ = cmd.Run() // status exits with its severity
		first, _, _ := strings.Cut(errs.String(), "\n")
		require.Regexp(t, "^qtop: warning: "+what+` \(database \w+\): run qtop migrate up$`, first, verb)
	}
	cmd := qtop(t, db.DSN(""), "dlq", "--output", "json")
	var errs bytes.Buffer
	cmd.Stderr = &errs
	require.NoError(t, cmd.Run())
	require.Regexp(t, `^\{"warning":\{"do":"run qtop migrate up","what":"`+what+`","where":"database \w+"\}\}\n$`, errs.String())
}
