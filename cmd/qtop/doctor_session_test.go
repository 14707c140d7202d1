package main

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/pgtest"
)

// doctorSays returns the finding of one check of `qtop doctor`.
func doctorSays(t *testing.T, check, dsn string, args ...string) finding {
	t.Helper()
	out, err := qtop(t, dsn, append([]string{"doctor", "-o", "json"}, args...)...).Output()
	var all []finding
	require.NoError(t, json.Unmarshal(out, &all), "%s", out)
	for _, f := range all {
		if f.Check == check {
			require.True(t, err != nil || f.State != "bad", "a bad line is a failure")
			return f
		}
	}
	t.Fatalf("no line %s: %s", check, out)
	return finding{}
}

// The doctor reports which pooler is in the path and what to set.
func TestDoctorOnPoolers(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	login := pgtest.Login(t, db, "queue_viewer")
	through := func(mode string) string { return pgtest.NewBouncer(t, db, mode, []string{login}).DSN(login) }
	for _, c := range []struct {
		dsn                  string
		args                 []string
		check                string
		state, found, remedy string
	}{
		{db.DSN(login), nil, "pooler", "ok", "none in the path", ""},
		{db.DSN(login), []string{"--pooler", "transaction"}, "pooler", "note", "none in the path", "leave pooler out"},
		{through("session"), nil, "pooler", "note", "session mode: wakes arrive", "default_pool_size"},
		{through("transaction"), nil, "pooler", "note", "transaction mode: LISTEN hears nothing", "set listen_dsn"},
		{through("transaction"), []string{"--listen-dsn", db.DSN(login)}, "pooler", "ok", "wakes arrive over listen_dsn", ""},
		{through("transaction"), []string{"--listen-dsn", through("transaction")}, "pooler", "bad", "no wake arrives over listen_dsn", "direct connection to the same database"},
		{through("statement"), nil, "connection", "bad", "statement mode", "pool_mode = transaction or session"},
	} {
		f := doctorSays(t, c.check, c.dsn, c.args...)
		require.Equal(t, c.state, f.State, f.Found)
		require.Contains(t, f.Found.String(), c.found)
		require.Contains(t, f.Remedy, c.remedy)
	}
}
