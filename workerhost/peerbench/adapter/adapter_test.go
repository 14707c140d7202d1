package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/qtop/qtop/pgclient/embedded"
)

func TestMain(m *testing.M) {
	embedded.SuperviseMain()
	code := m.Run()
	if shared.server != nil {
		if err := shared.server.Stop(context.Background()); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code) //nolint:forbidigo // exit code of the tests
}

// shared is one server for all tests.
var shared struct {
	once    sync.Once
	server  *embedded.Server
	err     error
	runs    atomic.Int64
	install sync.Mutex // one database at a time: all installations make the same roles
}

func sharedServer(t *testing.T) *embedded.Server {
	t.Helper()
	shared.once.Do(func() { shared.server, shared.err = embedded.Start(context.Background(), embedded.Options{}) })
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.server
}

// lines is a writer that passes each whole line of the output to its reader.
type lines struct {
	rest []byte
	out  chan map[string]any
	t    *testing.T
}

func (l *lines) Write(text []byte) (int, error) {
	l.rest = append(l.rest, text...)
	for {
		line, rest, whole := bytes.Cut(l.rest, []byte("\n"))
		if !whole {
			return len(text), nil
		}
		l.rest = rest
		var record map[string]any
		if err := json.Unmarshal(line, &record); err != nil {
			l.t.Errorf("not JSON: %s", line)
		}
		l.out <- record
	}
}

// The output lines of a few seconds keep the contract of the comparison: first the descriptor,
// then at each sampling time every required metric. The enqueued jobs are those that the tokens
// requested, and they are completed.
func TestTheLinesKeepTheContract(t *testing.T) {
	t.Parallel()
	run := start(t, map[string]string{
		"PRODUCER_PACING": "harness", "PRODUCER_BATCH_MAX": "16", "WORKER_COUNT": "8", "JOB_PAYLOAD_BYTES": "256",
	})
	tokens := run.in
	first := run.first
	var m manifest
	if err := json.Unmarshal(manifestText, &m); err != nil {
		t.Fatal(err)
	}
	if first["kind"] != "descriptor" || first["system"] != m.System || first["db_name"] != run.database {
		t.Fatalf("the first line is no descriptor: %v", first)
	}
	for _, key := range []string{"event_tables", "extensions", "version", "schema_version", "started_at"} {
		if first[key] == nil {
			t.Errorf("the descriptor has no %s: %v", key, first)
		}
	}
	tables, _ := first["event_tables"].([]any)
	have := map[string]bool{}
	for _, one := range tables {
		have[one.(string)] = true
	}
	for _, one := range m.EventTables {
		if !have[one] {
			t.Errorf("the descriptor lacks %s of adapter.json", one)
		}
	}

	const jobs = 5*40 + 5 // each token of 40 takes three calls
	for range 5 {
		for _, token := range []string{"ENQUEUE 40\n", "nonsense\n", "ENQUEUE 1\n"} {
			if _, err := io.WriteString(tokens, token); err != nil {
				t.Fatal(err)
			}
		}
	}
	windows := map[string]float64{"claim_p50_ms": 30, "claim_p95_ms": 30, "claim_p99_ms": 30, "enqueue_rate": 1, "completion_rate": 1, "queue_depth": 0}
	var done float64
	seen := map[string]map[string]float64{} // metrics by time and name
	for done < jobs-0.5 || len(seen) < 3 {
		r := run.next()
		at, metric := r["t"].(string), r["metric"].(string)
		value := r["value"].(float64)
		if r["kind"] != "adapter" || r["subject_kind"] != "adapter" || r["subject"] != "" || r["system"] != m.System {
			t.Fatalf("no sample: %v", r)
		}
		if window, required := windows[metric]; required && r["window_s"] != window {
			t.Errorf("%s has a window of %v s", metric, r["window_s"])
		}
		when, err := time.Parse("2006-01-02T15:04:05.000Z", at)
		if err != nil {
			t.Fatal(err)
		}
		if late := when.Sub(when.Truncate(time.Second)); late > 900*time.Millisecond {
			t.Errorf("a sample at %s is not at a boundary of the clock", at)
		}
		if seen[at] == nil {
			seen[at] = map[string]float64{}
		}
		seen[at][metric] = value
		if metric == "completion_rate" {
			done += value
		}
	}
	run.stop()
	if n := run.jobs("true"); n != jobs {
		t.Errorf("%d jobs were enqueued, not %d", n, jobs)
	}
	positive := false
	for at, metrics := range seen {
		if _, whole := metrics["producer_target_rate"]; !whole {
			continue // the last metric of a tick
		}
		for name := range windows {
			if _, there := metrics[name]; !there {
				t.Errorf("no %s at %s", name, at)
			}
		}
		positive = positive || metrics["claim_p50_ms"] > 0 && metrics["claim_p99_ms"] >= metrics["claim_p50_ms"]
	}
	if !positive {
		t.Errorf("no latency was measured: %v", seen)
	}
	if left := strings.TrimSpace(string(run.out.rest)); left != "" {
		t.Errorf("the last line is not ended: %s", left)
	}
}

// PRODUCER_MODE=fixed enqueues at PRODUCER_RATE: as many jobs as are due by the time that has passed.
func TestFixedModeKeepsTheRate(t *testing.T) {
	t.Parallel()
	began := time.Now()
	const rate = 200
	run := start(t, map[string]string{"PRODUCER_MODE": "fixed", "PRODUCER_RATE": "200", "PRODUCER_BATCH_MAX": "8"})
	run.until("enqueue_rate", func(v float64) bool { return v >= rate/2 })
	run.until("producer_target_rate", func(v float64) bool { return v == rate })
	run.until("completion_rate", func(v float64) bool { return v > 0 })
	run.stop()
	if n, due := run.jobs("true"), rate*time.Since(began).Seconds(); float64(n) > due {
		t.Errorf("%d jobs in a time of %.0f", n, due)
	}
}

// PRODUCER_MODE=depth-target enqueues until TARGET_DEPTH jobs are unclaimed, and no more.
func TestDepthTargetModeKeepsTheDepth(t *testing.T) {
	t.Parallel()
	run := start(t, map[string]string{
		"PRODUCER_MODE": "depth-target", "TARGET_DEPTH": "50", "PRODUCER_BATCH_MAX": "8", "WORKER_COUNT": "1", "JOB_WORK_MS": "1000",
	})
	run.until("queue_depth", func(v float64) bool {
		if v > 50 {
			t.Errorf("%v jobs are unclaimed", v)
		}
		return v == 50
	})
	if n := run.jobs("status IN ('queued', 'retry_waiting')"); n > 50 {
		t.Errorf("%d jobs are unclaimed", n)
	}
	run.stop()
}

// running is an adapter that runs in a separate database.
type running struct {
	t        *testing.T
	database string
	first    map[string]any // the descriptor
	out      *lines
	in       *io.PipeWriter
	cancel   context.CancelFunc
	ended    chan error
	conn     *pgx.Conn
	by       <-chan time.Time // when everything that is waited for must have come
}

// start runs an adapter with these settings until the end of the test.
func start(t *testing.T, env map[string]string) *running {
	t.Helper()
	if testing.Short() {
		t.Skip("short: the adapter is not run on a server")
	}
	server := sharedServer(t)
	r := &running{t: t, database: fmt.Sprint(strings.ToLower(t.Name()), shared.runs.Add(1)), out: &lines{out: make(chan map[string]any, 10_000), t: t}, ended: make(chan error, 1)}
	admin, err := pgx.Connect(t.Context(), server.DSN(embedded.Superuser, "postgres"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = admin.Exec(t.Context(), "CREATE DATABASE "+r.database)
	_ = admin.Close(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if r.conn, err = pgx.Connect(t.Context(), server.DSN(embedded.Superuser, r.database)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.conn.Close(context.Background()) })
	settings := map[string]string{"DATABASE_URL": server.DSN(embedded.Superuser, r.database), "SCENARIO": "long_horizon", "SAMPLE_EVERY_S": "1"}
	maps.Copy(settings, env)
	ctx, cancel := context.WithCancel(t.Context())
	r.cancel = cancel
	in, tokens := io.Pipe()
	r.in = tokens
	shared.install.Lock()
	defer shared.install.Unlock()
	go func() { r.ended <- run(ctx, func(key string) string { return settings[key] }, in, r.out) }()
	r.by = time.After(2 * time.Minute)
	r.first = r.next()
	return r
}

// stop ends the adapter, which the contract allows five seconds.
func (r *running) stop() {
	r.t.Helper()
	r.cancel()
	_ = r.in.Close()
	began := time.Now()
	if err := <-r.ended; err != nil {
		r.t.Error(err)
	}
	if took := time.Since(began); took > 5*time.Second {
		r.t.Errorf("it took %s to end", took)
	}
}

// until reads samples until the condition holds for one of the metric.
func (r *running) until(metric string, holds func(float64) bool) {
	r.t.Helper()
	for {
		if s := r.next(); s["metric"] == metric && holds(s["value"].(float64)) {
			return
		}
	}
}

// jobs returns how many jobs there are, queued, running or finished, for which the condition holds.
func (r *running) jobs(condition string) (n int) {
	r.t.Helper()
	if err := r.conn.QueryRow(r.t.Context(), "SELECT (SELECT count(*) FROM public.job_queue WHERE "+condition+
		") + (SELECT count(*) FROM public.job_history WHERE "+condition+")").Scan(&n); err != nil {
		r.t.Fatal(err)
	}
	return n
}

// next returns the next line.
func (r *running) next() map[string]any {
	r.t.Helper()
	select {
	case <-r.by:
		r.t.Fatal("what was waited for did not come within two minutes")
		return nil
	case record := <-r.out.out:
		return record
	}
}

// A quantile is exact to 0.1 %, and values older than 30 seconds are not counted.
func TestWindowForgets(t *testing.T) {
	t.Parallel()
	second := int64(1000)
	w := newWindow()
	w.now = func() int64 { return second }
	for ms := range 100 {
		w.add(time.Duration(ms+1) * time.Millisecond)
	}
	if p := w.quantile(0.5); p < 50.9 || p > 51.1 {
		t.Errorf("the median of 1 to 100 ms is %v", p)
	}
	second += windowSeconds + 1
	if p := w.quantile(0.5); p != 0 {
		t.Errorf("%v is left after 31 seconds", p)
	}
	w.add(7 * time.Millisecond)
	if p := w.quantile(0.99); p < 6.99 || p > 7.01 {
		t.Errorf("the only value is %v ms", p)
	}
}

func TestSettingsSayWhatIsWrong(t *testing.T) {
	t.Parallel()
	env := map[string]string{"WORKER_COUNT": "0", "PRODUCER_MODE": "wild", "SCENARIO": "other"}
	_, err := readSettings(func(key string) string { return env[key] })
	for _, word := range []string{"WORKER_COUNT", "PRODUCER_MODE", "SCENARIO", "DATABASE_URL"} {
		if err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("%v does not name %s", err, word)
		}
	}
}
