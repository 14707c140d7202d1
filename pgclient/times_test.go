// Every list and the snapshot can be read whatever time value a column holds.

package pgclient_test

import (
	"encoding/json"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient"
	"github.com/qtop/qtop/pgclient/lists"
	"github.com/qtop/qtop/pgclient/pgtest"
	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/pgclient/schema"
)

// everyRead calls every read of the client and encodes each result as JSON.
func everyRead(t *testing.T, c *console, conn *pgx.Conn, why string) {
	t.Helper()
	told := func(what string, v any, err error) {
		t.Helper()
		require.NoError(t, err, "%s: %s", why, what)
		_, err = json.Marshal(v)
		require.NoError(t, err, "%s: %s as JSON", why, what)
	}
	s, err := c.Snapshot(t.Context(), 0)
	told("the snapshot", s, err)
	r, err := c.Report(t.Context(), time.Now().Add(-time.Hour), time.Now())
	told("the report", r, err)
	_, _, err = c.SnapshotAt(t.Context(), time.Now(), 0)
	told("a past snapshot", nil, err)
	require.NotEmpty(t, s.Health, why)
	_, err = conn.Exec(t.Context(), `SELECT public.fn_queue_snapshot('0'), (SELECT count(x) FROM public.v_queue_health x), (SELECT count(x) FROM public.v_queue_alert x),
		(SELECT count(x) FROM public.v_queue_scheduler_status x), (SELECT count(x) FROM public.v_job x)`)
	require.NoError(t, err, why)
	ids := func(sql string) (out []string) {
		rows, err := conn.Query(t.Context(), sql)
		require.NoError(t, err)
		out, err = pgx.CollectRows(rows, pgx.RowTo[string])
		require.NoError(t, err)
		return out
	}
	of := map[queue.ListKind][]string{
		queue.ListFlagHistory: {"webhook.max_attempts"}, queue.ListAlertHistory: {""}, queue.ListResolution: {"system/queue_worker_silent"},
		queue.ListDeadLetter: ids(`SELECT id::text FROM public.dead_letters UNION ALL SELECT 'job:' || dead_letter_id FROM public.job_dead_letter
			UNION ALL SELECT 'event:' || dead_letter_id FROM public.iu_route_dead_letter`),
		queue.ListJob: ids("SELECT job_id::text FROM public.v_job LIMIT 20"), queue.ListOperation: ids("SELECT operation_id::text FROM public.queue_bulk_operation"),
		queue.ListEndpoint: ids("SELECT id::text FROM public.subscriptions"),
	}
	for _, w := range s.Waiting {
		of[queue.ListWhy] = append(of[queue.ListWhy], w.Queue.String())
	}
	for _, kind := range append(lists.Kinds(), queue.ListSession) {
		names, named := of[kind]
		if !named {
			names = []string{""}
		}
		for _, id := range names {
			p, err := c.List(t.Context(), queue.Query{Kind: kind, ID: id})
			told(string(kind)+" "+id, p, err)
		}
	}
}

func TestEveryTimeColumnToEveryOddValue(t *testing.T) {
	t.Parallel()
	db := pgtest.Released(t)
	require.NoError(t, schema.Up(t.Context(), db.DSN(""), nil))
	conn := db.Conn(t, "")
	c := open(t, pgclient.Options{DSN: db.DSN(""), Actor: "ann"})
	everyRead(t, c, conn, "nothing odd")
	columns := pgtest.TimeColumns(t, conn)
	for _, value := range pgtest.OddTimes() {
		pgtest.SetTimes(t, conn, columns, value, false)
		everyRead(t, c, conn, "every time that there is: "+value)
	}
	for _, value := range pgtest.OddTimes() {
		pgtest.SetTimes(t, conn, columns, value, true)
		everyRead(t, c, conn, "every time: "+value)
	}
}

// One column at a time, so that no failure hides another.
func TestEachTimeColumnToEveryOddValue(t *testing.T) {
	if os.Getenv("QTOP_TEST_FULL") == "" {
		t.Skip("takes minutes: make test-full")
	}
	t.Parallel()
	db := pgtest.Released(t)
	require.NoError(t, schema.Up(t.Context(), db.DSN(""), nil))
	conn := db.Conn(t, "")
	c := open(t, pgclient.Options{DSN: db.DSN(""), Actor: "ann"})
	for _, column := range pgtest.TimeColumns(t, conn) {
		for _, value := range pgtest.OddTimes() {
			pgtest.SetTimes(t, conn, []pgtest.TimeColumn{column}, value, false)
			everyRead(t, c, conn, column.Table+"."+column.Column+" = "+value)
		}
		pgtest.SetTimes(t, conn, []pgtest.TimeColumn{column}, "now", false)
	}
}

// A time that Go cannot hold is shown as a word, and is sent back to the server as the stored
// value.
func TestOddTimesThereAndBack(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	c := open(t, pgclient.Options{DSN: db.DSN(""), Actor: "ann"})
	words := map[string]string{
		"infinity": "infinity", "-infinity": "-infinity", "4713-01-01 BC": "before year 1", "294276-12-31": "after year 9999", "1970-01-01Z": "1970-01-01",
	}
	conn := db.Conn(t, "")
	for value, word := range words {
		_, err := conn.Exec(t.Context(), "UPDATE public.dot_config SET updated_at = $1::text::timestamptz WHERE key = 'webhook.max_attempts'", value)
		require.NoError(t, err) // its trigger sets the time
		_, err = conn.Exec(t.Context(), "SET session_replication_role = replica")
		require.NoError(t, err)
		_, err = conn.Exec(t.Context(), "UPDATE public.dot_config SET updated_at = $1::text::timestamptz WHERE key = 'webhook.max_attempts'", value)
		require.NoError(t, err)
		s, err := c.Snapshot(t.Context(), 0)
		require.NoError(t, err)
		i := slices.IndexFunc(s.Flags, func(f queue.Flag) bool { return f.Key.String() == "webhook.max_attempts" })
		require.Equal(t, word, queue.Stamp(s.Flags[i].UpdatedAt, "2006-01-02"), value)
		p, err := c.Plan(t.Context(), queue.Request{Action: queue.ActFlagSet, Targets: []string{"webhook.max_attempts"}, Args: map[string]string{"value": "7"}, Reason: "r"})
		require.NoError(t, err)
		if value == "294276-12-31" {
			continue // cannot be distinguished from the year 10000: refused as changed
		}
		require.Empty(t, p.Refused, value)
		res, err := c.Apply(t.Context(), p)
		require.NoError(t, err)
		require.Empty(t, res.Refused, value)
		_, err = conn.Exec(t.Context(), "UPDATE public.dot_config SET value = '5' WHERE key = 'webhook.max_attempts'")
		require.NoError(t, err)
	}
}
