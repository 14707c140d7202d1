package inspect

import (
	"context"
	"time"

	"github.com/qtop/qtop/pgclient"
	"github.com/qtop/qtop/pgclient/queue"
)

// ServerState holds problems of the server that affect qtop and that only the server's
// administrator can fix.
type ServerState struct {
	Bytes         int64      // the size of the database
	DataDirectory queue.Text // empty = this login may not see it
	// Backend, Login and Peer identify the process of this session on the server: its number, and the
	// words of its title: login and database, then the client, as (PORT) or [local].
	Backend     int64
	Login, Peer string
	// ArchiveFailing says that the last WAL segment could not be archived; the server keeps all WAL
	// since then on its disk.
	ArchiveFailing bool
	// SyncMissing says that commits wait for standbys (synchronous_standby_names), and that fewer of
	// them are connected than a commit needs. False also if the login may not see the standbys.
	SyncMissing bool
	SyncNames   queue.Text // the value of synchronous_standby_names
	// Replay is how far this standby is behind its primary; 0 = the server is no standby, or has
	// replayed everything.
	Replay time.Duration
	// Cut says that this server is a standby and receives no WAL. False also if the login may not
	// see this.
	Cut bool
	// OldestDatabase is the database of the server in which the oldest row version that is not frozen is
	// the most transactions (or multixacts) old, and Age is that number.
	OldestDatabase queue.Text
	Age            int64
}

// Follower is a replication slot or a standby that lags behind.
type Follower struct {
	Slot    bool          // true: a replication slot, which keeps WAL on the disk; false: a standby
	Name    queue.Text    // the name of the slot, or the application_name of the standby
	Active  bool          // a slot is in use, or a standby is connected
	Status  string        // the wal_status of a slot (reserved, extended, unreserved, lost), or the state of a standby
	Bytes   int64         // bytes of WAL that it still needs
	Delay   time.Duration // time until a commit is replayed on the standby; not set for a slot
	Unknown bool          // true: this login may not see the other values
	Of      int           // all slots and standbys, also those that are not returned
}

// Server reads the state of the server.
func Server(ctx context.Context, c *pgclient.Client) (ServerState, error) {
	all, err := read[ServerState](ctx, c, `SELECT pg_database_size(current_database()), COALESCE((SELECT s.setting FROM pg_settings s WHERE s.name = 'data_directory'), ''),
		pg_backend_pid(), session_user::text || ' ' || current_database() || ' ', COALESCE('(' || inet_client_port() || ')', '[local]'),
		(current_setting('archive_mode') = 'always' OR current_setting('archive_mode') = 'on' AND NOT pg_is_in_recovery())
			AND COALESCE((SELECT a.last_failed_time > COALESCE(a.last_archived_time, '-infinity') FROM pg_stat_archiver a), false),
		NOT pg_is_in_recovery() AND current_setting('synchronous_standby_names') <> '' AND current_setting('synchronous_commit') NOT IN ('off', 'local')
			AND (SELECT count(*) FILTER (WHERE r.sync_state IN ('sync', 'quorum')) < COALESCE(substring(lower(current_setting('synchronous_standby_names') COLLATE "C")
				FROM '^\s*(?:any|first)?\s*([0-9]+)\s*\(')::int, 1) AND bool_and(r.state IS NOT NULL) IS NOT FALSE FROM pg_stat_replication r),
		current_setting('synchronous_standby_names'),
		CASE WHEN pg_is_in_recovery() AND pg_last_wal_receive_lsn() IS DISTINCT FROM pg_last_wal_replay_lsn()
			THEN greatest(clock_timestamp() - pg_last_xact_replay_timestamp(), interval '0') ELSE interval '0' END,
		pg_is_in_recovery() AND NOT EXISTS (SELECT FROM pg_stat_wal_receiver w WHERE w.status IS NULL OR w.status = 'streaming'),
		x.datname::text, x.age
		FROM (SELECT d.datname, greatest(age(d.datfrozenxid), mxid_age(d.datminmxid))::bigint AS age FROM pg_database d ORDER BY 2 DESC, 1 LIMIT 1) x`)
	if err != nil || len(all) == 0 {
		return ServerState{}, err
	}
	return all[0], nil
}

// Followers returns up to twenty replication slots and standbys of the server: slots that have lost
// or are about to lose WAL first, for which PostgreSQL no longer says how far they are behind, then
// those furthest behind.
func Followers(ctx context.Context, c *pgclient.Client) ([]Follower, error) {
	return read[Follower](ctx, c, `WITH here AS (SELECT CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END AS lsn)
		SELECT f.*, (count(*) OVER ())::int FROM (
			SELECT true, s.slot_name::text, s.active, COALESCE(s.wal_status, '') AS status, greatest(COALESCE(pg_wal_lsn_diff(h.lsn, s.restart_lsn), 0), 0)::bigint AS bytes, interval '0', false
			FROM pg_replication_slots s, here h
			UNION ALL
			SELECT false, COALESCE(NULLIF(r.application_name, ''), 'standby'), true, COALESCE(r.state, ''),
				greatest(COALESCE(pg_wal_lsn_diff(h.lsn, r.replay_lsn), 0), 0)::bigint, COALESCE(r.replay_lag, interval '0'), r.state IS NULL
			FROM pg_stat_replication r, here h WHERE r.state IS DISTINCT FROM 'backup') f
		ORDER BY status IN ('lost', 'unreserved') DESC, bytes DESC, 2 LIMIT 20`)
}
