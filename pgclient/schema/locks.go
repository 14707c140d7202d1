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
	shareRowExclusive = "SHARE ROW EXCLUSIVE" // the lock that creating a trigger needs: readers continue
	accessExclusive   = "ACCESS EXCLUSIVE"
)

var alteredTable = regexp.MustCompile(
	`(?m)^(?:ALTER TABLE (?:ONLY )?|DROP TABLE |CREATE (?:UNIQUE )?INDEX \w+\s+ON (?:ONLY )?|UPDATE |DELETE FROM )public\.(\w+)`)

// lockTables locks the tables that this attempt will change, in the order of their names and each
// in the mode that its change needs, before anything is changed. So an attempt that meets a locked
// table wastes no work, and two migrations never lock in opposite orders.
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
		if !strings.HasPrefix(o.sql, "CREATE OR REPLACE") { // dropped, or dropped and created again
			mode = accessExclusive
		}
		if modes[o.relation()] != accessExclusive {
			modes[o.relation()] = mode
		}
	}
	for _, table := range slices.Sorted(maps.Keys(modes)) {
		in.doing = "locking " + table
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
	in.found = nil // somebody may have changed a trigger before its table was locked
	return nil
}

// blockerWatch remembers which session blocks another one. It looks from a separate connection
// while the lock request waits, because after a lock timeout the server no longer knows.
type blockerWatch struct {
	stop context.CancelFunc
	done chan struct{}

	mu  sync.Mutex
	who string
}

// watchBlockers looks five times a second which session blocks conn, until close. It connects when
// it looks for the first time; without a second connection it finds no blocker.
func watchBlockers(ctx context.Context, conn *pgx.Conn) *blockerWatch {
	ctx, stop := context.WithCancel(ctx)
	w := &blockerWatch{stop: stop, done: make(chan struct{})}
	go func() {
		defer close(w.done)
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		var second *pgx.Conn
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if second == nil {
				var err error
				if second, err = pgx.ConnectConfig(ctx, conn.Config()); err != nil {
					return
				}
				defer second.Close(context.WithoutCancel(ctx))
			}
			w.look(ctx, second, conn.PgConn().PID())
		}
	}()
	return w
}

// look replaces what is known only if pid waits for a lock now. If the wait ends between the reading
// of pg_locks and that of the blocking pids, there is no row.
func (w *blockerWatch) look(ctx context.Context, second *pgx.Conn, pid uint32) {
	var who string
	err := atOnce(ctx, second, func(q querier) error {
		return q.QueryRow(ctx, `SELECT format('%s is held by %s', COALESCE(l.relation::regclass::text, 'a row'),
			COALESCE(format('pid %s (%s)', a.pid, concat_ws(', ', a.usename, NULLIF(a.application_name, ''), COALESCE(host(a.client_addr), 'local socket'), a.state,
				'transaction open for ' || date_trunc('second', clock_timestamp() - a.xact_start))), 'a prepared transaction'))
		FROM pg_locks l CROSS JOIN unnest(pg_blocking_pids($1)) b (pid) LEFT JOIN pg_stat_activity a ON a.pid = b.pid
		WHERE l.pid = $1 AND NOT l.granted ORDER BY a.xact_start NULLS LAST LIMIT 1`, int32(pid)).Scan(&who) //nolint:gosec // as PostgreSQL has it
	})
	if err == nil {
		w.mu.Lock()
		w.who = who
		w.mu.Unlock()
	}
}

// blocker returns a description of the session that was last seen to block, and forgets it.
func (w *blockerWatch) blocker() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	who := cmp.Or(w.who, "a lock was not granted; which session holds it is not known")
	w.who = ""
	return who
}

func (w *blockerWatch) close() {
	w.stop()
	<-w.done
}
