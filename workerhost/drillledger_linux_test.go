// The ledger of the fire drill: what producers were told, what handlers and the receiver saw, and
// which host claimed each job.
package workerhost_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/lists"
	"github.com/qtop/qtop/pgclient/queue"
)

// busy waits until the host runs a job, so that a fault hits work in progress;
// at most 2 s.
func (d *drill) busy(ctx context.Context, h *drillHost) {
	for end := time.Now().Add(2 * time.Second); time.Now().Before(end) && ctx.Err() == nil; holdFor(ctx, 2*time.Millisecond) {
		b, _ := os.ReadFile(h.spec.Ledger)
		if bytes.Count(b, []byte("begin")) > bytes.Count(b, []byte("end")) {
			return
		}
	}
}

// request is one request that the receiver got.
type request struct {
	id, host string
	at       time.Time
}

// requests returns the requests that the receiver got, by event number. A host sends its id as the
// version in User-Agent.
func (d *drill) requests() map[int][]request {
	all := map[int][]request{}
	for _, g := range d.receiver.all() {
		var body struct{ N int }
		if json.Unmarshal(g.body, &body) == nil {
			all[body.N] = append(all[body.N], request{g.id, strings.TrimPrefix(g.header.Get("User-Agent"), "qtop/"), g.at})
		}
	}
	return all
}

// begun is the record that a handler started a job: which host, when, and when the handler ended.
type begun struct {
	host    string
	at, end time.Time // end is zero if the host was killed before
}

// handled returns the starts of handlers that the hosts wrote into their ledgers, by job number.
func (d *drill) handled(t *testing.T) map[int][]begun {
	t.Helper()
	all := map[int][]begun{}
	files, err := filepath.Glob(filepath.Join(d.ledgers, "*.*"))
	require.NoError(t, err)
	for _, file := range files {
		host, _, _ := strings.Cut(filepath.Base(file), ".")
		b, err := os.ReadFile(file)
		require.NoError(t, err)
		open := map[int]int{} // the start without an end, by job number; one file is of one process
		for line := range strings.Lines(string(b)) {
			var what string
			var n int
			var at int64
			if got, _ := fmt.Sscanf(line, "%s %d %d", &what, &n, &at); got != 3 {
				continue // a kill cut the line off
			}
			if what == "begin" {
				open[n] = len(all[n])
				all[n] = append(all[n], begun{host: host, at: time.UnixMilli(at)})
			} else if i, found := open[n]; found {
				all[n][i].end = time.UnixMilli(at)
			}
		}
	}
	for _, one := range all {
		slices.SortFunc(one, func(a, b begun) int { return a.at.Compare(b.at) })
	}
	return all
}

// lost returns the acknowledged jobs and events that are not finished.
func (d *drill) lost(t *testing.T) (jobs, events []int) {
	t.Helper()
	handled := d.handled(t)
	sent := d.requests()
	d.acknowledged.mu.Lock()
	defer d.acknowledged.mu.Unlock()
	for n := range d.acknowledged.jobs {
		if !slices.ContainsFunc(handled[n], func(b begun) bool { return !b.end.IsZero() }) {
			jobs = append(jobs, n)
		}
	}
	for n := range d.acknowledged.events {
		if len(sent[n]) == 0 {
			events = append(events, n)
		}
	}
	return jobs, events
}

// recordLeases makes the database record which host claimed which job, and when. The time is that
// of the machine since its start, because the server's clock steps.
func (d *drill) recordLeases() {
	d.exec("CREATE TABLE public.test_lease (job_id uuid, host text, at float8)")
	d.exec(`CREATE FUNCTION public.test_lease() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
		BEGIN
			INSERT INTO public.test_lease VALUES (new.job_id, new.lease_owner, split_part(pg_read_file('/proc/uptime'), ' ', 1)::float8);
			RETURN NULL;
		END $$`)
	d.exec(`CREATE TRIGGER test_lease AFTER UPDATE ON public.job_queue FOR EACH ROW
		WHEN (new.lease_token IS NOT NULL AND new.lease_token IS DISTINCT FROM old.lease_token) EXECUTE FUNCTION public.test_lease()`)
	d.exec("CREATE TABLE public.test_filler (t text)")
}

// claimed is the claim of a job by a host.
type claimed struct {
	host string
	at   time.Time
}

// claims returns the claims of a job, by its number, in order.
func (d *drill) claims(t *testing.T, n int) []claimed {
	t.Helper()
	up, err := os.ReadFile("/proc/uptime")
	require.NoError(t, err)
	seconds, err := strconv.ParseFloat(strings.Fields(string(up))[0], 64)
	require.NoError(t, err)
	start := time.Now().Add(-time.Duration(seconds * float64(time.Second)))
	rows, err := d.admin.Query(t.Context(), `SELECT l.host, l.at FROM public.test_lease l
		JOIN public.job_history h ON h.job_id = l.job_id WHERE h.job_kind = 'drill' AND h.idempotency_key = $1 ORDER BY l.at`, fmt.Sprint(n))
	require.NoError(t, err)
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (c claimed, err error) {
		var at float64
		err = row.Scan(&c.host, &at)
		c.at = start.Add(time.Duration(at * float64(time.Second)))
		return c, err
	})
	require.NoError(t, err)
	return all
}

// consoleReads reads everything that a console shows: the snapshot, the session and each list. It
// returns how many sections the snapshot lacks.
func (d *drill) consoleReads(ctx context.Context) (lacking int, err error) {
	s, err := d.console.Snapshot(ctx, 0)
	if err != nil {
		return 0, fmt.Errorf("snapshot: %w", err)
	}
	if _, err := d.console.Session(ctx); err != nil {
		return 0, fmt.Errorf("session: %w", err)
	}
	var job string
	if err := d.admin.QueryRow(ctx, "SELECT job_id::text FROM public.job_history LIMIT 1").Scan(&job); err != nil {
		return 0, fmt.Errorf("a job: %w", err)
	}
	ids := map[queue.ListKind]string{
		queue.ListDeadLetter: "1", queue.ListOperation: "1", queue.ListEndpoint: "1", queue.ListJob: job,
		queue.ListJobs: "work/drill", queue.ListWhy: "webhook events", queue.ListResolution: "work/drill", queue.ListFlagHistory: "webhook.timeout_seconds",
	}
	for _, kind := range append(lists.Kinds(), queue.ListSession) {
		_, err := d.console.List(ctx, queue.Query{Kind: kind, ID: ids[kind]})
		if none := kind == queue.ListDeadLetter || kind == queue.ListOperation; none && err != nil && strings.Contains(err.Error(), "there is no ") {
			continue // that is the answer
		}
		if err != nil {
			return 0, fmt.Errorf("list %s: %w", kind, err)
		}
	}
	return len(s.Missing), nil
}
