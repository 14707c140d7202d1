package pgclient_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient"
	"github.com/qtop/qtop/pgclient/enqueue"
	"github.com/qtop/qtop/pgclient/pgtest"
	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/pgclient/work"
)

// An error about a missing right names the login, what it may not do, and the role to grant.
func TestAMissingRightNamesLoginAndRole(t *testing.T) {
	w := newWorld(t)
	login := pgtest.Login(t, w.db)
	c := open(t, pgclient.Options{DSN: w.db.DSN(login), WorkConns: 1, Actor: "ann"})

	_, err := work.New(c.Client).HostRegister(t.Context(), "h", "00000000-0000-0000-0000-000000000001", "v", nil)
	kind(t, queue.KindPermission, err)
	require.Equal(t, "login "+login+" lacks a right: permission denied for function fn_queue_host_register (SQLSTATE 42501): "+
		"the login needs the role dot_executor; as the login that ran migrate up: GRANT dot_executor TO "+login, err.Error())

	enqueuer := enqueue.New(c.Client)
	job := enqueue.Job{Kind: "kg.reindex", Domain: "kg", Executor: "Agent", Payload: []byte("{}")}
	_, _, one := enqueuer.Enqueue(t.Context(), job)
	_, many := enqueuer.EnqueueMany(t.Context(), []enqueue.Job{job, job})
	_, _, put := enqueuer.Put(t.Context(), job, 0)
	for _, err := range []error{one, many, put} {
		kind(t, queue.KindPermission, err)
		require.Contains(t, err.Error(), "login "+login+" lacks a right: ")
		require.Contains(t, err.Error(), "the login needs the role event_ingest_writer; as the login that ran migrate up: GRANT event_ingest_writer TO "+login)
		var refused *pgconn.PgError
		require.ErrorAs(t, err, &refused, "the promise of package enqueue: nothing was enqueued")
	}

	_, err = c.List(t.Context(), queue.Query{Kind: queue.ListDeadLetters})
	kind(t, queue.KindPermission, err)
	require.Regexp(t, `^login `+login+` lacks a right: permission denied for .*needs (the role|one of the roles) .*queue_viewer.*GRANT \S+( of them)? TO `+login, err.Error())

	_, err = c.Plan(t.Context(), queue.Request{Action: queue.ActResume, Targets: []string{"1"}, Reason: "r"})
	kind(t, queue.KindPermission, err)
	require.Contains(t, err.Error(), login)
}

// Without the right to read the snapshot or a payload, the reason names the role in force and the
// GRANT, as every refusal does.
func TestUnreadableSnapshotNamesTheRoleInForce(t *testing.T) {
	w := newWorld(t)
	app := pgtest.Login(t, w.db)
	login, viewer := pgtest.Login(t, w.db, app), w.client("queue_viewer")
	w.exec("ALTER ROLE " + login + " SET role = " + app)
	remedy := "the role " + app + ", with whose rights the login works, needs one of the roles dead_letter_operator, queue_viewer, workflow_admin; as the login that ran migrate up: GRANT one of them TO " + app
	c := open(t, pgclient.Options{DSN: w.db.DSN(login), Actor: "ann"})
	s, err := c.Snapshot(t.Context(), 0)
	require.NoError(t, err)
	require.Equal(t, queue.KindPermission, s.Refused.Kind)
	require.Contains(t, s.Refused.Do.String(), remedy)
	require.Contains(t, s.Missing["all"].String(), "login "+login+" lacks a right: ")
	require.Contains(t, s.Missing["all"].String(), remedy)
	_, _, err = c.SnapshotAt(t.Context(), time.Now(), 0)
	kind(t, queue.KindPermission, err)
	require.Contains(t, err.Error(), "login "+login+" lacks a right: ")
	require.Contains(t, err.Error(), remedy)

	hook := w.die(deadLetter{"order", "https://hooks.acme.test/a", "HTTP_503", time.Minute})[0]
	w.exec("REVOKE EXECUTE ON FUNCTION public.fn_payload_masked FROM queue_viewer")
	require.Regexp(t, "^this payload may not be read: login .* lacks a right: .*the login needs one of the roles dead_letter_operator, workflow_admin; as the login", w.detail(viewer, hook).PayloadWhyNot.String())
}

// A session shows the roles whose rights are in force, not those of which the login is a member.
func TestSessionShowsTheRoleInForce(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	login := pgtest.Login(t, db, "queue_viewer", "dot_executor")
	read := func() queue.Session {
		s, err := open(t, pgclient.Options{DSN: db.DSN(login), Actor: "ann"}).Session(t.Context())
		require.NoError(t, err)
		require.Equal(t, login, s.User.String())
		return s
	}
	s := read()
	require.ElementsMatch(t, []string{"queue_viewer", "dot_executor"}, s.Roles)
	require.True(t, s.InForce.Empty())
	_, err := db.Conn(t, "").Exec(t.Context(), "ALTER ROLE "+login+" SET role = queue_viewer")
	require.NoError(t, err)
	s = read()
	require.Equal(t, []string{"queue_viewer"}, s.Roles)
	require.Equal(t, "queue_viewer", s.InForce.String())
}
