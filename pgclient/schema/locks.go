package schema

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	shareRowExclusive = "SHARE ROW EXCLUSIVE" // what making a trigger takes: readers go on
	accessExclusive   = "ACCESS EXCLUSIVE"
)

var alteredTable = regexp.MustCompile(
	`(?m)^(?:ALTER TABLE (?:ONLY )?|DROP TABLE |CREATE (?:UNIQUE )?INDEX \w+\s+ON (?:ONLY )?|UPDATE |DELETE FROM )public\.(\w+)`)

// lockTables locks the tables that this try will change, in the order of their
// names and each in the mode that its change needs, before anything is changed.
// So a table that somebody holds costs no work, and two tables are never taken in
// opposite orders.
func (in *installer) lockTables(ctx context.Context, from int32) error {
	modes := map[string]string{}
	for _, m := range in.release.migrations[from:] {
		for _, hit := range alteredTable.FindAllStringSubmatch(m.up, -1) {
			modes[hit[1]] = accessExclusive
		}
	}
	plan, err := in.planTriggers(ctx)
	if err != nil {
		return err
	}
	for _, o := range plan {
		mode := shareRowExclusive
		if !strings.HasPrefix(o.sql, "CREATE OR REPLACE") { // it is dropped first, or for good
			mode = accessExclusive
		}
		if modes[o.relation()] != accessExclusive {
			modes[o.relation()] = mode
		}
	}
	for _, table := range slices.Sorted(maps.Keys(modes)) {
		in.doing = "lock of " + table
		var there bool
		if err := in.tx.QueryRow(ctx, "SELECT to_regclass($1) IS NOT NULL", "public."+table).Scan(&there); err != nil {
			return err
		}
		if !there {
			continue
		}
		if err := exec(ctx, in.tx, fmt.Sprintf("LOCK TABLE public.%s IN %s MODE", table, modes[table])); err != nil {
			return err
		}
	}
	return nil
}

// watcher remembers who blocks a session, seen from a connection of its own: once
// the lock has timed out, nobody can tell any more.
type watcher struct {
	stop context.CancelFunc
	done chan struct{}

	mu  sync.Mutex
	who string
}

// watch looks five times a second who blocks conn, until its close. It connects
// when the first look is due; without a second connection it sees nobody.
func watch(ctx context.Context, conn *pgx.Conn) *watcher {
	ctx, stop := context.WithCancel(ctx)
	w := &watcher{stop: stop, done: make(chan struct{})}
	go func() {
		defer close(w.done)
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		var eye *pgx.Conn
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if eye == nil {
				var err error
				if eye, err = pgx.ConnectConfig(ctx, conn.Config()); err != nil {
					return
				}
				defer eye.Close(context.WithoutCancel(ctx))
			}
			w.look(ctx, eye, conn.PgConn().PID())
		}
	}()
	return w
}

func (w *watcher) look(ctx context.Context, eye *pgx.Conn, pid uint32) {
	var who string
	err := atOnce(ctx, eye, func(q querier) error {
		return q.QueryRow(ctx, `SELECT format('%s is held by %s', COALESCE((SELECT string_agg(DISTINCT l.relation::regclass::text, ', ') FROM pg_locks l
				WHERE l.pid = $1 AND NOT l.granted AND l.locktype IN ('relation', 'tuple')), 'a row'),
			COALESCE(format('pid %s (%s)', a.pid, concat_ws(', ', a.usename, NULLIF(a.application_name, ''), COALESCE(host(a.client_addr), 'local socket'), a.state,
				'transaction open for ' || date_trunc('second', clock_timestamp() - a.xact_start))), 'a prepared transaction'))
		FROM unnest(pg_blocking_pids($1)) b (pid) LEFT JOIN pg_stat_activity a USING (pid) ORDER BY a.xact_start NULLS LAST LIMIT 1`, int32(pid)).Scan(&who) //nolint:gosec // as PostgreSQL has it
	})
	if err == nil {
		w.mu.Lock()
		w.who = who
		w.mu.Unlock()
	}
}

// blocker says who was seen last, and forgets.
func (w *watcher) blocker() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	who := cmp.Or(w.who, "a lock did not come, who holds it was not seen")
	w.who = ""
	return who
}

func (w *watcher) close() {
	w.stop()
	<-w.done
}
