package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/qtop/qtop/pgclient/embedded"
)

func TestMain(m *testing.M) {
	embedded.SuperviseMain()
	m.Run()
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
	if testing.Short() {
		t.Skip("short: the adapter is not run on a server")
	}
	server, err := embedded.Start(t.Context(), embedded.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	env := map[string]string{
		"DATABASE_URL": server.DSN(embedded.Superuser, "postgres"), "SCENARIO": "long_horizon", "PRODUCER_MODE": "fixed",
		"PRODUCER_PACING": "harness", "WORKER_COUNT": "8", "SAMPLE_EVERY_S": "1", "JOB_PAYLOAD_BYTES": "256",
	}
	ctx, stop := context.WithCancel(t.Context())
	in, tokens := io.Pipe()
	out := &lines{out: make(chan map[string]any, 10_000), t: t}
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, func(key string) string { return env[key] }, in, out) }()

	first := next(t, out.out)
	var m manifest
	if err := json.Unmarshal(manifestText, &m); err != nil {
		t.Fatal(err)
	}
	if first["kind"] != "descriptor" || first["system"] != m.System || first["db_name"] != "postgres" {
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

	const jobs = 5*40 + 5
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
		r := next(t, out.out)
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
	stop()
	_ = tokens.Close()
	began := time.Now()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("it took %s to end", took)
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
	if left := strings.TrimSpace(string(out.rest)); left != "" {
		t.Errorf("the last line is not ended: %s", left)
	}
}

func next(t *testing.T, records <-chan map[string]any) map[string]any {
	t.Helper()
	select {
	case r := <-records:
		return r
	case <-time.After(2 * time.Minute):
		t.Fatal("no line for two minutes")
		return nil
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
