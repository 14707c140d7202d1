package main

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient"
	"github.com/qtop/qtop/pgclient/inspect"
	"github.com/qtop/qtop/pgclient/pgsession"
	"github.com/qtop/qtop/pgclient/pgtest"
	"github.com/qtop/qtop/pgclient/queue"
)

// The doctor reports what fills the disk of a real server and what its commits
// wait for.
func TestDoctorOnTheServer(t *testing.T) {
	t.Parallel()
	const db = "postgres"
	s := pgtest.OwnInstalled(t, db, map[string]string{"wal_level": "logical", "max_replication_slots": "4", "archive_mode": "on", "archive_command": "false", "max_wal_senders": "4", "synchronous_commit": "on"})
	admin, err := pgsession.Connect(t.Context(), s.DSN("postgres", db))
	require.NoError(t, err)
	defer func() { _ = admin.Close(context.WithoutCancel(t.Context())) }()
	exec := func(sql string) {
		_, err := admin.Exec(t.Context(), sql)
		require.NoError(t, err, sql)
	}
	lines := func() string {
		out, _ := qtop(t, s.DSN("postgres", db), "doctor", "-o", "json").Output()
		var all []finding
		require.NoError(t, json.Unmarshal(out, &all), "%s", out)
		var b strings.Builder
		for _, f := range all {
			if f.Check == "disk" || f.Check == "replication" {
				b.WriteString(f.State + " " + f.Check + ": " + f.Found.String() + " | " + f.Remedy + "\n")
			}
		}
		return b.String()
	}
	first := lines()
	require.Contains(t, first, " are free on the disk of the server; the database has ")
	require.Contains(t, first, "ok replication: no standby is connected")
	exec("SELECT pg_create_physical_replication_slot('left_behind', true)")
	exec("SELECT pg_switch_wal()")
	require.Eventually(t, func() bool { return strings.Contains(lines(), "bad disk: WAL cannot be archived") }, patience, 50*time.Millisecond)
	require.Contains(t, lines(), "note disk: the replication slot left_behind, which nobody reads, holds ")
	require.Contains(t, lines(), "pg_drop_replication_slot('left_behind')")

	c, err := pgclient.Open(t.Context(), pgclient.Options{DSN: s.DSN("postgres", db), Actor: "ann"})
	require.NoError(t, err)
	defer c.Close()
	exec("ALTER SYSTEM SET synchronous_standby_names = 'ghost'")
	exec("SELECT pg_reload_conf()")
	defer func() {
		exec("ALTER SYSTEM RESET synchronous_standby_names")
		exec("SELECT pg_reload_conf()")
	}()
	require.Eventually(t, func() bool {
		at, err := inspect.Server(t.Context(), c)
		return err == nil && at.SyncMissing && at.SyncNames.String() == "ghost"
	}, patience, 10*time.Millisecond)
}

// The doctor's judgement of a disk and of standbys.
func TestDoctorJudgesTheServer(t *testing.T) {
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
	require.Contains(t, said(judgeDisk(full, nil, 0, 0)), "note the database has 5.0 GiB; how full the disk is, qtop does not see")
	slot := inspect.Follower{Slot: true, Name: queue.Clean("s"), Status: "reserved", Bytes: 2 << 30}
	require.Contains(t, said(judgeDisk(full, []inspect.Follower{slot}, 0, 0)), "bad the replication slot s, which nobody reads, holds 2.0 GiB")
	slot.Active = true
	require.Contains(t, said(judgeDisk(full, []inspect.Follower{slot}, 0, 0)), "note the replication slot s, which is read")
	slot.Status = "lost"
	require.Contains(t, said(judgeDisk(full, []inspect.Follower{slot}, 0, 0)), "bad the replication slot s has lost")
	late := inspect.Follower{Name: queue.Clean("b"), Delay: time.Minute}
	require.Contains(t, said(judgeReplication(full, []inspect.Follower{late})), "note the standby b is 1m0s and 0 bytes of WAL behind")
	require.Contains(t, said(judgeReplication(full, []inspect.Follower{{Name: queue.Clean("b")}})), "ok 1 standby follows")
	unseen := said(judgeReplication(full, []inspect.Follower{{Name: queue.Clean("b"), Unknown: true}}))
	require.Contains(t, unseen, "note this login may not see how far the standby is behind")
	require.NotContains(t, unseen, "ok ")
	require.Equal(t, "'it''s'", literal("it's"))
	require.Contains(t, said(judgeReplication(inspect.ServerState{SyncMissing: true, SyncNames: queue.Clean("b")}, nil)), "bad commits wait for a standby of synchronous_standby_names = b")
	require.Contains(t, said(judgeReplication(inspect.ServerState{Replay: time.Hour}, nil)), "note this standby is 1h0m0s behind")
	require.Contains(t, said(judgeReplication(inspect.ServerState{Cut: true}, nil)), "note this standby receives nothing")
}
