package main

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/pgtest"
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
		"older code":   {pgtest.New(t), "UPDATE public.qtop_schema_code SET code = 1, serves = 0; ALTER TABLE public.qtop_schema_code DROP CONSTRAINT qtop_schema_code_code_check, DROP CONSTRAINT qtop_schema_code_check; UPDATE public.qtop_schema_code SET code = -1", "is installed, this qtop needs code"},
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
