package workerhost

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/qtop/qtop/pgclient"
	"github.com/qtop/qtop/pgclient/queue"
)

const (
	// databaseEvery is the shortest time between two reads for the figures of the database. It is
	// also the age that a snapshot may have: all hosts that are scraped share one per 15 s.
	databaseEvery = 15 * time.Second
	// waitingMost is how many queues with waiting work get figures: those that wait longest.
	waitingMost = 100
	// databaseTakes is how long a scrape waits for the database: a server that does not answer must
	// not take the figures of the host away, for which a scrape has 10 s by default.
	databaseTakes = 2 * time.Second
)

// databaseCollector collects the figures of the whole database. It reads the snapshot that
// consoles share, only when it is scraped, and at most once in databaseEvery. Where the login may
// not read it or the database does not answer, the figures are absent, and qtop_database_readable
// has the reason.
type databaseCollector struct {
	client *pgclient.Client
	log    *slog.Logger

	mu       sync.Mutex
	readAt   time.Time
	snapshot queue.Snapshot
	lacks    string // why snapshot has no figures; "" = it has them
}

// Describe implements prometheus.Collector. It sends nothing, because not every figure is always
// there.
func (c *databaseCollector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c *databaseCollector) Collect(ch chan<- prometheus.Metric) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.readAt.IsZero() || time.Since(c.readAt) >= databaseEvery {
		c.read()
	}
	gauge(ch, "qtop_database_readable", "1 if the figures of the database are here; 0 with the reason if not.",
		queue.Choose(c.lacks == "", 1.0, 0.0), prometheus.Labels{"reason": c.lacks})
	if c.lacks == "" {
		databaseFigures(ch, &c.snapshot)
	}
}

// read reads the snapshot.
func (c *databaseCollector) read() {
	ctx, cancel := context.WithTimeout(context.Background(), databaseTakes)
	defer cancel()
	s, err := c.client.Snapshot(ctx, databaseEvery)
	c.readAt, c.snapshot = time.Now(), s
	switch {
	case err != nil:
		c.lacks = "the database does not answer: see the log of the host"
		c.log.Warn("the metrics of the database could not be read", "error", err.Error())
	default:
		c.lacks = s.Missing["all"].String()
	}
}

// databaseFigures sends the figures of a snapshot.
func databaseFigures(ch chan<- prometheus.Metric, s *queue.Snapshot) {
	put := func(name, help string, value float64, labels prometheus.Labels) { gauge(ch, name, help, value, labels) }
	put("qtop_database_snapshot_timestamp_seconds", "When the figures of the database were read, by its clock.", float64(s.TakenAt.UnixMilli())/1000, nil)
	put("qtop_database_dead_letters_open", "Open dead letters of webhooks, jobs and events.", float64(s.Flow.DeadOpen), nil)
	put("qtop_database_hosts_alive", "Worker hosts with a heartbeat younger than 15 s.", float64(s.Flow.HostsAlive), nil)
	silent := 0
	for _, x := range s.Executors {
		if x.State == "silent" {
			silent++
		}
	}
	put("qtop_database_silent_executors", "Executors and tick workers that are silent.", float64(silent), nil)
	alerts := map[[2]string]int{}
	for _, severity := range []string{"warning", "critical"} {
		for _, state := range []string{"open", "acked"} {
			alerts[[2]string{severity, state}] = 0 // an alert rule needs the 0 too
		}
	}
	for _, a := range queue.Causes(s.Alerts) {
		alerts[[2]string{a.Severity, a.State}]++
	}
	for of, n := range alerts {
		put("qtop_database_alerts", "Alerts, one per cause.", float64(n), prometheus.Labels{"severity": of[0], "state": of[1]})
	}
	seen := map[[3]string]bool{}
	for _, w := range s.Waiting {
		of := [3]string{w.Source, w.Subject.String(), w.Domain.String()}
		if seen[of] || len(seen) == waitingMost {
			continue // two texts that are too long may look alike
		}
		seen[of] = true
		labels := prometheus.Labels{"source": of[0], "subject": of[1], "domain": of[2]}
		put("qtop_database_waiting", "Work that waits in a queue.", float64(w.Waiting), labels)
		put("qtop_database_oldest_waiting_seconds", "Seconds since the oldest work of a queue became due; 0 if none is due.", float64(w.AgeSeconds), labels)
	}
}

// gauge sends a gauge.
func gauge(ch chan<- prometheus.Metric, name, help string, value float64, labels prometheus.Labels) {
	ch <- prometheus.MustNewConstMetric(prometheus.NewDesc(name, help, nil, labels), prometheus.GaugeValue, value)
}
