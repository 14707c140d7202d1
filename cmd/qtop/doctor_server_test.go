package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient"
	"github.com/qtop/qtop/pgclient/embedded"
	"github.com/qtop/qtop/pgclient/inspect"
	"github.com/qtop/qtop/pgclient/pgtest"
	"github.com/qtop/qtop/pgclient/queue"
)

// The doctor reports what fills the disk of a real server and what its commits
// wait for.
func TestDoctorOnTheServer(t *testing.T) {
	t.Parallel()
	const db = "postgres"
	params := map[string]string{"wal_level": "logical", "max_replication_slots": "25", "archive_mode": "on", "archive_command": "false", "max_wal_senders": "4", "synchronous_commit": "on"}
	s := pgtest.OwnInstalled(t, db, params)
	admin, exec := onServer(t, s, db)
	lines := func() string {
		all, _ := examined(t, s.DSN("postgres", db))
		return asLines(all, "disk", "replication", "partitions", "schema")
	}
	first := lines()
	require.Contains(t, first, " are free on the disk of the server; the database has ")
	require.Contains(t, first, "ok replication: no standby is connected")
	diskOverTCP(t, s)
	exec("SELECT pg_create_physical_replication_slot('left_behind', true)")
	exec("SELECT pg_switch_wal()")
	require.Eventually(t, func() bool { return strings.Contains(lines(), "bad disk: WAL cannot be archived") }, patience, 50*time.Millisecond)
	require.Contains(t, lines(), "note disk: the replication slot left_behind, which nobody reads, holds ")
	require.Contains(t, lines(), "pg_drop_replication_slot('left_behind')")

	// A slot that has lost WAL is named first: it is 0 bytes behind.
	exec("ALTER SYSTEM SET max_slot_wal_keep_size = 0")
	exec("SELECT pg_reload_conf()")
	require.Eventually(t, func() bool {
		exec("SELECT pg_switch_wal()")
		exec("CHECKPOINT")
		var lost bool
		require.NoError(t, admin.QueryRow(t.Context(), "SELECT wal_status = 'lost' FROM pg_replication_slots WHERE slot_name = 'left_behind'").Scan(&lost))
		return lost
	}, patience, 10*time.Millisecond)
	exec("ALTER SYSTEM RESET max_slot_wal_keep_size")
	exec("SELECT pg_reload_conf()")
	exec("SELECT pg_create_physical_replication_slot('other_' || n, true) FROM generate_series(1, 20) n")
	exec("SELECT pg_switch_wal()")
	exec("SELECT pg_logical_emit_message(false, 'test', 'so that all of them are behind')")
	many := lines()
	require.Contains(t, many, "bad disk: the replication slot left_behind has lost or is about to lose WAL that it needs (lost)")
	require.Contains(t, many, "note replication: looked at: the 20 replication slots and standbys furthest behind, of 21")
	exec("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name LIKE 'other%'")

	var leaf string
	require.NoError(t, admin.QueryRow(t.Context(), "SELECT max(relname) FROM pg_class WHERE relkind = 'r' AND relname ~ '^job_history_[0-9]'").Scan(&leaf))
	exec("DROP TABLE public." + leaf)
	exec("REVOKE CREATE ON SCHEMA public FROM PUBLIC, queue_owner")
	last := lines()
	require.Contains(t, last, "bad schema: rights SCHEMA public: queue_owner may not create in it | GRANT CREATE ON SCHEMA public TO queue_owner")
	require.Regexp(t, "bad partitions: .*permission denied for schema public", last)
	exec("GRANT CREATE ON SCHEMA public TO queue_owner")
	require.Contains(t, lines(), "note partitions: 1 partition was missing and is made now")
	exec("ALTER TABLE public." + leaf + " RENAME TO by_hand")
	require.Regexp(t, "bad partitions: partition "+leaf+` of job_history cannot be made: partition public.by_hand overlaps it .* \| ALTER TABLE public.by_hand RENAME TO `+leaf, lines())
	exec("ALTER TABLE public.by_hand RENAME TO " + leaf)

	c, err := pgclient.Open(t.Context(), pgclient.Options{DSN: s.DSN("postgres", db), Actor: "ann"})
	require.NoError(t, err)
	defer c.Close()
	exec("ALTER SYSTEM SET synchronous_standby_names = 'ghost'")
	exec("SELECT pg_reload_conf()")
	noStandbys := func() { // commits would wait for standbys for ever
		exec("ALTER SYSTEM RESET synchronous_standby_names")
		exec("SELECT pg_reload_conf()")
	}
	defer func() {
		if t.Failed() {
			noStandbys()
		}
	}()
	require.Eventually(t, func() bool {
		at, err := inspect.Server(t.Context(), c)
		return err == nil && at.SyncMissing && at.SyncNames.String() == "ghost"
	}, patience, 10*time.Millisecond)
	// Of two that a commit needs, one is not enough.
	exec("ALTER SYSTEM SET synchronous_standby_names = 'ANY 2 (one, two)'")
	exec("SELECT pg_reload_conf()")
	states := func() (n int) {
		require.NoError(t, admin.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'quorum'").Scan(&n))
		return n
	}
	for n, name := range []string{"one", "two"} {
		follow(t, s.DSN("postgres", db), name)
		require.Eventually(t, func() bool { return states() == n+1 }, patience, 10*time.Millisecond)
		require.Eventually(t, func() bool {
			at, err := inspect.Server(t.Context(), c)
			return err == nil && at.SyncNames.String() == "ANY 2 (one, two)" && at.SyncMissing == (name == "one")
		}, patience, 10*time.Millisecond, name)
	}

	noStandbys()
	if os.Getenv("QTOP_TEST_FULL") == "" || pgtest.HostilePass() {
		return // the server goes on archiving for seconds before it stops
	}
	params["archive_mode"] = "off"
	require.NoError(t, s.Restart(t.Context()))
	at, err := inspect.Server(t.Context(), c)
	require.NoError(t, err)
	require.False(t, at.ArchiveFailing, "what failed before archive_mode was switched off")
}

// diskOverTCP checks that the doctor sees the disk also over TCP, if the server runs on this
// machine and the login may ask where its data are.
func diskOverTCP(t *testing.T, s *embedded.Server) {
	t.Helper()
	superuser(t, s, "CREATE ROLE seer LOGIN IN ROLE pg_read_all_settings; CREATE ROLE blind LOGIN")
	addr := pgtest.TCP(t, s)
	dsn := func(login string) string { return pgtest.OverTCP(t, s.DSN(login, "postgres"), addr) }
	seen := doctorSays(t, "disk", dsn("seer"))
	if runtime.GOOS == "linux" {
		require.Contains(t, seen.Found.String(), " are free on the disk of the server; the database has ")
	}
	blind := doctorSays(t, "disk", dsn("blind"))
	require.Equal(t, "note", blind.State)
	require.Contains(t, blind.Found.String(), "this login may not ask where the data are")
	require.Contains(t, blind.Remedy, "pg_read_all_settings")

	c, err := pgclient.Open(t.Context(), pgclient.Options{DSN: dsn("seer"), Actor: "ann"})
	require.NoError(t, err)
	defer c.Close()
	at, err := inspect.Server(t.Context(), c)
	require.NoError(t, err)
	require.Equal(t, runtime.GOOS == "linux", backendHere(at))
	for _, other := range []inspect.ServerState{
		{Backend: at.Backend, Login: "another app ", Peer: at.Peer}, {Backend: at.Backend, Login: at.Login, Peer: "(5)"}, {Backend: int64(os.Getpid()), Login: at.Login, Peer: at.Peer},
	} {
		require.False(t, backendHere(other), "%v", other)
	}
}

// follow connects as a standby of this name, which has received all WAL so far.
func follow(t *testing.T, dsn, name string) {
	t.Helper()
	cfg, err := pgconn.ParseConfig(dsn)
	require.NoError(t, err)
	cfg.RuntimeParams["replication"], cfg.RuntimeParams["application_name"] = "database", name
	conn, err := pgconn.ConnectConfig(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	system, err := conn.Exec(t.Context(), "IDENTIFY_SYSTEM").ReadAll()
	require.NoError(t, err)
	at := string(system[0].Rows[0][2])
	conn.Frontend().Send(&pgproto3.Query{String: "START_REPLICATION PHYSICAL " + at})
	require.NoError(t, conn.Frontend().Flush())
	for {
		msg, err := conn.ReceiveMessage(t.Context())
		require.NoError(t, err)
		if _, begun := msg.(*pgproto3.CopyBothResponse); begun {
			break
		}
	}
	var high, low uint64
	_, err = fmt.Sscanf(at, "%X/%X", &high, &low)
	require.NoError(t, err)
	status := []byte{'r'} // written, flushed, replayed, the time, no reply asked for
	for _, n := range []uint64{high<<32 | low, high<<32 | low, high<<32 | low, 0} {
		status = binary.BigEndian.AppendUint64(status, n)
	}
	conn.Frontend().Send(&pgproto3.CopyData{Data: append(status, 0)})
	require.NoError(t, conn.Frontend().Flush())
}

// The doctor's judgement of a disk and of standbys.
func TestDoctorJudgesTheServer(t *testing.T) {
	for version, state := range map[string]string{"14.23": "bad", "9.6.24 (Debian 9.6.24-0)": "bad", "15.0": "ok", "18beta1": "ok", "": "ok"} {
		require.Equal(t, state, serverFinding(queue.Session{Version: queue.Clean(version)}).State, version)
	}
	said := func(all []finding) string {
		var b strings.Builder
		for _, f := range all {
			b.WriteString(f.State + " " + f.Found.String() + "\n")
			require.True(t, f.State == "ok" || f.Remedy != "", "%v", f)
		}
		return b.String()
	}
	const gib = uint64(1) << 30
	full := inspect.ServerState{Bytes: 5 << 30}
	require.Contains(t, said(judgeDisk(full, nil, gib/2, 10*gib)), "bad 512.0 MiB of 10.0 GiB are free")
	require.Contains(t, said(judgeDisk(full, nil, 40*gib, 1000*gib)), "bad 40.0 GiB of 1000.0 GiB are free")
	require.Contains(t, said(judgeDisk(full, nil, 100*gib, 1000*gib)), "note 100.0 GiB")
	require.Contains(t, said(judgeDisk(full, nil, 500*gib, 1000*gib)), "ok 500.0 GiB")
	require.Contains(t, said(judgeDisk(full, nil, 0, 0)), "note the database has 5.0 GiB; how full the disk is, qtop does not see: this login may not ask where the data are")
	elsewhere := inspect.ServerState{DataDirectory: queue.Clean("/data")}
	require.Contains(t, said(judgeDisk(elsewhere, nil, 0, 0)), "note the database has 0 bytes; how full the disk is, qtop does not see: this is not the server's machine")
	slot := inspect.Follower{Slot: true, Name: queue.Clean("s"), Status: "reserved", Bytes: 2 << 30}
	require.Contains(t, said(judgeDisk(full, []inspect.Follower{slot}, 0, 0)), "bad the replication slot s, which nobody reads, holds 2.0 GiB")
	slot.Active = true
	require.Contains(t, said(judgeDisk(full, []inspect.Follower{slot}, 0, 0)), "note the replication slot s, which is read")
	slot.Status = "lost"
	require.Contains(t, said(judgeDisk(full, []inspect.Follower{slot}, 0, 0)), "bad the replication slot s has lost")
	late := inspect.Follower{Name: queue.Clean("b"), Delay: time.Minute}
	for age, says := range map[int64]string{200_000_000: "", 1_200_000_000: "note the oldest rows of the database ", 1_700_000_000: "bad the oldest rows of the database shop are 1700 million"} {
		require.Contains(t, said(judgeAge(inspect.ServerState{OldestDatabase: queue.Clean("shop"), Age: age})), says)
		require.Equal(t, says == "", said(judgeAge(inspect.ServerState{Age: age})) == "")
	}
	require.Contains(t, said(judgeReplication(full, []inspect.Follower{late})), "note the standby b is 1m and 0 bytes of WAL behind")
	require.Contains(t, said(judgeReplication(full, []inspect.Follower{{Name: queue.Clean("b")}})), "ok 1 standby follows")
	unseen := said(judgeReplication(full, []inspect.Follower{{Name: queue.Clean("b"), Unknown: true}}))
	require.Contains(t, unseen, "note this login may not see how far the standby is behind")
	require.NotContains(t, unseen, "ok ")
	require.Equal(t, "'it''s'", literal("it's"))
	require.Contains(t, said(judgeReplication(inspect.ServerState{SyncMissing: true, SyncNames: queue.Clean("b")}, nil)), "bad commits wait for standbys of synchronous_standby_names = b, and too few are connected")
	require.Contains(t, said(judgeReplication(inspect.ServerState{Replay: time.Hour}, nil)), "note this standby is 1h behind")
	require.Contains(t, said(judgeReplication(inspect.ServerState{Cut: true}, nil)), "note this standby receives nothing")
}

// What one part of a check cannot read takes away nothing of its other parts.
func TestDoctorKeepsWhatItCouldRead(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	login := operator(t, db)
	_, err := db.Conn(t, "").Exec(t.Context(), "REVOKE SELECT ON pg_catalog.pg_replication_slots, pg_catalog.pg_db_role_setting FROM PUBLIC; ALTER ROLE "+login+" CREATEROLE")
	require.NoError(t, err)
	out, _ := qtop(t, db.DSN(login), "doctor").CombinedOutput()
	for _, says := range []string{`bad +replication +`, `(note|ok|bad) +disk +.*the database has `, `bad +login +`, `note +wide login +` + login + ` has CREATEROLE`} {
		require.Regexp(t, says, string(out))
	}
}
