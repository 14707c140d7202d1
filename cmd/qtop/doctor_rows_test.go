package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/pgtest"
)

// The doctor names rows that qtop needs and that are missing, and the command that puts them back.
func TestDoctorOnMissingRows(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	admin := db.Conn(t, "")
	exec := func(sql string) {
		t.Helper()
		_, err := admin.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	login := operator(t, db)
	doctor := func() (string, []string) { return foundBy(t, "rows", db.DSN(login)) }
	const whole = "ok those that qtop itself needs exist\n"
	lines, _ := doctor()
	require.Equal(t, whole, lines)

	exec("SET session_replication_role = replica")
	exec("DELETE FROM public.router_offsets; DELETE FROM public.dot_iu_runtime_lease WHERE lease_name IN ('partitions', 'clock', 'recount'); DELETE FROM public.dot_config_rule")
	lines, remedies := doctor()
	const why = "bad missing, as after a restore of some tables or a DELETE: "
	require.Regexp(t, "^"+why+`dot_config_rule iu_core\.[a-z_]+, .* and [0-9]+ more\n`+why+"dot_iu_runtime_lease partitions, recount\n"+why+"router_offsets\n$", lines)
	require.Regexp(t, "^qtop migrate up ", remedies[0])
	out, err := qtop(t, db.DSN(""), "migrate", "up").CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "row missing, put back: dot_iu_runtime_lease partitions, recount")
	lines, _ = doctor()
	require.Equal(t, whole, lines)

	exec("UPDATE public.qtop_schema_code SET seeds = 'other'")
	lines, _ = doctor()
	require.Equal(t, "note not compared: another release of qtop wrote them\n", lines)
	lines, _ = foundBy(t, "rows", db.DSN(pgtest.Login(t, db)))
	require.Contains(t, lines, "note not ")
}
