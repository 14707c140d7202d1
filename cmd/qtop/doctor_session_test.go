package main

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/embedded"
	"github.com/qtop/qtop/pgclient/pgsession"
	"github.com/qtop/qtop/pgclient/pgtest"
	"github.com/qtop/qtop/workerhost"
)

// onServer connects to a server as its superuser, and returns also a function that runs a statement.
func onServer(t *testing.T, s *embedded.Server, database string) (admin *pgx.Conn, exec func(sql string)) {
	t.Helper()
	admin, err := pgsession.Connect(t.Context(), s.DSN(embedded.Superuser, database))
	require.NoError(t, err)
	t.Cleanup(func() { _ = admin.Close(context.WithoutCancel(t.Context())) })
	return admin, func(sql string) {
		t.Helper()
		_, err := admin.Exec(t.Context(), sql)
		require.NoError(t, err, sql)
	}
}

// examined returns the findings of `qtop doctor`, and whether it failed, which a bad one makes it do.
func examined(t *testing.T, dsn string, args ...string) (all []finding, failed bool) {
	t.Helper()
	out, err := qtop(t, dsn, append([]string{"doctor", "-o", "json"}, args...)...).Output()
	require.NoError(t, json.Unmarshal(out, &all), "%s", out)
	return all, err != nil
}

// asLines returns the findings whose check is in checks, one in each line; without checks all.
func asLines(all []finding, checks ...string) string {
	var b strings.Builder
	for _, f := range all {
		if len(checks) == 0 || slices.Contains(checks, f.Check) {
			b.WriteString(f.State + " " + f.Check + ": " + f.Found.String() + " | " + f.Remedy + "\n")
		}
	}
	return b.String()
}

// doctorSays returns the finding of one check of `qtop doctor`.
func doctorSays(t *testing.T, check, dsn string, args ...string) finding {
	t.Helper()
	all, failed := examined(t, dsn, args...)
	i := slices.IndexFunc(all, func(f finding) bool { return f.Check == check })
	require.NotEqual(t, -1, i, "no line %s: %s", check, asLines(all))
	require.True(t, failed || all[i].State != "bad", "a bad line is a failure")
	return all[i]
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

	admin := db.Conn(t, "")
	const level = " SET default_transaction_isolation = serializable"
	for _, sql := range []string{"GRANT dot_executor TO " + login, "ALTER DATABASE " + db.Name + level} {
		_, err := admin.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	require.Equal(t, "note", doctorSays(t, "isolation", db.DSN(login)).State, "a direct connection sets its level")
	f := doctorSays(t, "isolation", through("transaction"))
	require.Equal(t, "bad", f.State, f.Found)
	require.Contains(t, f.Found.String(), "no job can be claimed")
	_, err := admin.Exec(t.Context(), "ALTER ROLE "+login+" SET default_transaction_isolation = 'read committed'")
	require.NoError(t, err)
	require.Equal(t, "note", doctorSays(t, "isolation", through("transaction")).State, "the login has another level")
}

// The doctor says whether a worker host can run with this login and these settings, and which GRANT is missing.
func TestDoctorOnHostRights(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	bare, jobs, all := pgtest.Login(t, db), pgtest.Login(t, db, "dot_executor"), pgtest.Login(t, db, workerhost.Roles(nil)...)
	group, owner, idle := pgtest.Login(t, db), pgtest.Login(t, db, "queue_owner"), pgtest.Login(t, db)
	_, err := db.Conn(t, "").Exec(t.Context(), "SELECT public.fn_queue_executor_register('mailer', 'Agent', '{mail}', 30, 600, $1::text, 'ann')", group)
	require.NoError(t, err)
	for _, sql := range []string{"ALTER ROLE " + idle + " NOINHERIT", "GRANT dot_executor TO " + idle} {
		_, err = db.Conn(t, "").Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	handler := []string{"--executor", "mailer", "--handlers", `[{"kind": "mail.send", "url": "https://mail.example/hook"}]`}
	for _, c := range []struct {
		login                string
		args                 []string
		state, found, remedy string
	}{
		{bare, nil, "note", "a worker host with this login runs no loop: it lacks dot_executor, webhook_worker", "GRANT dot_executor, webhook_worker TO " + bare + ", if a host connects with it"},
		{jobs, nil, "note", "a worker host with this login runs every loop but those that need webhook_worker", "GRANT webhook_worker TO " + jobs + ", if a host connects with it"},
		{jobs, []string{"--loops", "webhook_router"}, "ok", "all that a worker host needs: dot_executor", ""},
		{all, nil, "ok", "all that a worker host needs: dot_executor, webhook_worker", ""},
		{owner, nil, "ok", "this login has the rights of the schema's owner, with which a worker host runs; in production give hosts a login with dot_executor, webhook_worker alone", ""},
		{idle, nil, "note", "a worker host with this login runs no loop: it lacks dot_executor, webhook_worker (it is a member of dot_executor, but does not inherit the rights)", "GRANT dot_executor, webhook_worker TO " + idle +
			" WITH INHERIT TRUE, before PostgreSQL 16 GRANT dot_executor, webhook_worker TO " + idle + " and ALTER ROLE " + idle + " INHERIT"},
		{all, handler, "note", "a worker host with this login claims no jobs as mailer, which belongs to " + group, "GRANT " + group + " TO " + all},
	} {
		f := doctorSays(t, "host rights", db.DSN(c.login), c.args...)
		require.Equal(t, c.state, f.State, f.Found)
		require.Equal(t, c.found, f.Found.String())
		require.Contains(t, f.Remedy, c.remedy)
	}
}

// The doctor names the roles that a login lacks, with the verbs that need them.
func TestDoctorOnRights(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	login := pgtest.Login(t, db, "queue_viewer", "workflow_admin", "dot_executor", "subscription_admin")
	f := doctorSays(t, "rights", db.DSN(login))
	require.Equal(t, "note", f.State)
	require.Regexp(t, `^without dead_letter_operator: no requeue, resolve, reopen, undo, .+, .+ and [0-9]+ more$`, f.Found.String())
	require.Equal(t, "GRANT dead_letter_operator TO "+login+", where that is meant", f.Remedy)
	f = doctorSays(t, "rights", db.DSN(pgtest.Login(t, db, "queue_viewer", "workflow_admin", "dead_letter_operator", "subscription_admin")))
	require.Equal(t, "without dot_executor: no loops of a worker host", f.Found.String())
}
