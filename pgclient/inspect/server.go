package inspect

// This file reads for the doctor what fills the disk of the server, and how far its
// standbys are behind.

import (
	"context"
	"time"

	"github.com/qtop/qtop/pgclient"
	"github.com/qtop/qtop/pgclient/queue"
)

// ServerState is how a server stands that nothing of qtop can mend.
type ServerState struct {
	Bytes         int64      // of the database
	DataDirectory queue.Text // empty = this login may not see it, or came over the network
	// ArchiveFailing: the last segment of WAL could not be archived, so all since then
	// stays on the disk.
	ArchiveFailing bool
	// SyncMissing: commits wait for a standby (synchronous_standby_names), and none that
	// counts is connected. False also where the login may not see the standbys.
	SyncMissing bool
	SyncNames   queue.Text
	// Replay is how far this standby is behind; 0 = it is none, or has replayed all it has.
	Replay time.Duration
	// Cut: this standby receives nothing. False also where the login may not see it.
	Cut bool
}

// Follower is a replication slot or a standby that is behind.
type Follower struct {
	Slot    bool       // a slot, which holds WAL on the disk; else a standby
	Name    queue.Text // of the slot, or the application_name of the standby
	Active  bool
	Status  string        // wal_status of a slot (reserved, extended, unreserved, lost), state of a standby
	Bytes   int64         // of WAL that it still needs
	Delay   time.Duration // until a commit is replayed there; of a standby
	Unknown bool          // this login may not see more
}

// Server reads it.
func Server(ctx context.Context, c *pgclient.Client) (ServerState, error) {
	all, err := read[ServerState](ctx, c, `SELECT pg_database_size(current_database()), COALESCE((SELECT s.setting FROM pg_settings s WHERE s.name = 'data_directory' AND inet_server_addr() IS NULL), ''),
		COALESCE((SELECT a.last_failed_time > COALESCE(a.last_archived_time, '-infinity') FROM pg_stat_archiver a), false),
		NOT pg_is_in_recovery() AND current_setting('synchronous_standby_names') <> '' AND current_setting('synchronous_commit') NOT IN ('off', 'local')
			AND NOT EXISTS (SELECT FROM pg_stat_replication r WHERE r.state IS NULL OR r.sync_state IN ('sync', 'quorum')),
		current_setting('synchronous_standby_names'),
		CASE WHEN pg_is_in_recovery() AND pg_last_wal_receive_lsn() IS DISTINCT FROM pg_last_wal_replay_lsn()
			THEN greatest(clock_timestamp() - pg_last_xact_replay_timestamp(), interval '0') ELSE interval '0' END,
		pg_is_in_recovery() AND NOT EXISTS (SELECT FROM pg_stat_wal_receiver w WHERE w.status IS NULL OR w.status = 'streaming')`)
	if err != nil || len(all) == 0 {
		return ServerState{}, err
	}
	return all[0], nil
}

// Followers are the slots and the standbys of the server, those that are furthest behind
// first, at most twenty.
func Followers(ctx context.Context, c *pgclient.Client) ([]Follower, error) {
	return read[Follower](ctx, c, `WITH here AS (SELECT CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END AS lsn)
		SELECT * FROM (
			SELECT true, s.slot_name::text, s.active, COALESCE(s.wal_status, ''), greatest(COALESCE(pg_wal_lsn_diff(h.lsn, s.restart_lsn), 0), 0)::bigint AS bytes, interval '0', false
			FROM pg_replication_slots s, here h
			UNION ALL
			SELECT false, COALESCE(NULLIF(r.application_name, ''), 'standby'), true, COALESCE(r.state, ''),
				greatest(COALESCE(pg_wal_lsn_diff(h.lsn, r.replay_lsn), 0), 0)::bigint, COALESCE(r.replay_lag, interval '0'), r.state IS NULL
			FROM pg_stat_replication r, here h WHERE r.state IS DISTINCT FROM 'backup') f
		ORDER BY bytes DESC, 2 LIMIT 20`)
}
