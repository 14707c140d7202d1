package schema

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

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
		in.doing, in.wants = "lock of "+table, []string{table}
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
	in.wants = nil
	return nil
}

// holder says in one clause who holds locks on these relations that keep us from
// changing them; the oldest transaction of several.
func holder(ctx context.Context, conn *pgx.Conn, relations []string) string {
	what := strings.Join(relations, ", ")
	if what == "" {
		what = "the catalogue"
	}
	var who string
	err := conn.QueryRow(ctx, `SELECT COALESCE(format('pid %s (%s)', l.pid, concat_ws(', ', a.usename, NULLIF(a.application_name, ''),
			COALESCE(host(a.client_addr), 'local socket'), a.state, 'transaction open for ' || date_trunc('second', clock_timestamp() - a.xact_start))),
			'a prepared transaction')
		FROM pg_locks l LEFT JOIN pg_stat_activity a USING (pid)
		WHERE l.locktype = 'relation' AND l.granted AND l.pid IS DISTINCT FROM pg_backend_pid()
			AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
			AND l.relation IN (SELECT c.oid FROM pg_class c WHERE c.relnamespace = 'public'::regnamespace AND c.relname = ANY ($1))
		ORDER BY l.mode <> ALL ('{RowExclusiveLock,ShareLock,ShareRowExclusiveLock,ExclusiveLock,AccessExclusiveLock}'), a.xact_start NULLS LAST LIMIT 1`,
		relations).Scan(&who)
	if err != nil {
		who = "somebody who has ended meanwhile"
	}
	return what + " is held by " + who
}
