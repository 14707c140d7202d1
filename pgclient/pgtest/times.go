package pgtest

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

// OddTimes returns extreme times: the limits of PostgreSQL's types, of calendars, and the start
// values of clocks.
func OddTimes() []string {
	return []string{"-infinity", "4713-01-01 BC", "0001-01-01", "1970-01-01", "10000-01-01", "294276-12-31", "infinity"}
}

// TimeColumn is a column that holds a time.
type TimeColumn struct{ Table, Column string }

// TimeColumns returns the time columns of all tables in schema public.
func TimeColumns(t testing.TB, conn *pgx.Conn) []TimeColumn {
	t.Helper()
	rows, err := conn.Query(context.Background(), `SELECT c.relname, a.attname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
		WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition AND a.attnum > 0 AND NOT a.attisdropped
		AND a.atttypid IN ('timestamptz'::regtype, 'timestamp'::regtype, 'date'::regtype) ORDER BY 1, 2`)
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (c TimeColumn, err error) {
		return c, row.Scan(&c.Table, &c.Column)
	})
	if err != nil || len(all) < 80 {
		t.Fatalf("pgtest: %d columns that hold a time: %v", len(all), err)
	}
	return all
}

// SetTimes sets columns to a time without running triggers: in the rows where the column is not
// NULL, or in every row if nulls is true. If a constraint refuses the time, it sets as many rows as
// the constraint allows.
func SetTimes(t testing.TB, conn *pgx.Conn, columns []TimeColumn, value string, nulls bool) {
	t.Helper()
	ctx := context.Background()
	if _, err := conn.Exec(ctx, "SET session_replication_role = replica; SET timezone = 'UTC'"); err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	sets := map[string][]string{}
	for _, c := range columns {
		sets[c.Table] = append(sets[c.Table],
			fmt.Sprintf("%[1]s = CASE WHEN %[2]t OR %[1]s IS NOT NULL THEN '%[3]s'::timestamptz END", c.Column, nulls, value))
	}
	changed := 0
	for table, set := range sets {
		if _, err := conn.Exec(ctx, "UPDATE public."+table+" SET "+strings.Join(set, ", ")); err == nil {
			changed++
			continue
		}
		for _, s := range set {
			if _, err := conn.Exec(ctx, "UPDATE public."+table+" SET "+s); err == nil {
				changed++
				continue
			}
			if _, err := conn.Exec(ctx, "UPDATE public."+table+" SET "+s+" WHERE ctid = (SELECT min(ctid) FROM public."+table+")"); err == nil {
				changed++
			}
		}
	}
	if len(columns) > 1 && changed < len(sets)/2 {
		t.Fatalf("pgtest: %d of %d tables have taken %s", changed, len(sets), value)
	}
}
