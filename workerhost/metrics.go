package workerhost

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/workerhost/loop"
)

// collector reads the loops' own counters at each scrape.
type collector struct{ h *Host }

// Describe implements prometheus.Collector.
func (c collector) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(c, ch) }

// Collect implements prometheus.Collector.
func (c collector) Collect(ch chan<- prometheus.Metric) {
	put := func(kind prometheus.ValueType, name, help string, value float64, label prometheus.Labels) {
		ch <- prometheus.MustNewConstMetric(prometheus.NewDesc(name, help, nil, label), kind, value)
	}
	st := c.h.Status()
	for _, l := range st.Loops {
		running, of := 0.0, prometheus.Labels{"loop": l.Name}
		if l.State == loop.Running {
			running = 1
		}
		put(prometheus.GaugeValue, "qtop_loop_running", "1 while the loop runs.", running, of)
		put(prometheus.CounterValue, "qtop_loop_done_total", "Units of work done by the loop.", float64(l.Done), of)
		put(prometheus.CounterValue, "qtop_loop_errors_total", "Passes of the loop that failed.", float64(l.Errors), of)
		put(prometheus.GaugeValue, "qtop_loop_in_flight", "Work in flight in the loop.", float64(l.InFlight), of)
		if l.Name == loopJobs {
			put(prometheus.GaugeValue, "qtop_jobs_in_flight", "Jobs claimed and not settled.", float64(l.InFlight), nil)
		}
	}
	for outcome, n := range c.h.jobs.Outcomes.Totals() {
		put(prometheus.CounterValue, "qtop_jobs_done_total", "Job attempts by outcome; failed ones are retried or dead-lettered.",
			float64(n), prometheus.Labels{"outcome": outcome})
	}
	put(prometheus.CounterValue, "qtop_wakes_total", "Notifications received.", float64(st.Listener.Heard), nil)
}

// Ready returns why the host is not ready, or "" when no other live instance has its host id and
// every loop of Options.Loops is running: neither stopped, draining nor failed. It says nothing
// about work: a loop whose passes fail, because a right is missing or the database is away, is
// running, and so is job_executor while its executor may not claim. Status().Loops[i].LastErr has
// the reason until a pass succeeds; qtop_loop_errors_total of /metrics counts failed passes.
func (h *Host) Ready() string {
	st := h.Status()
	if st.Refused != "" {
		return st.Refused
	}
	if why := h.waits.Load(); why != nil {
		return *why
	}
	for _, l := range st.Loops {
		wanted := h.opts.Loops == nil || slices.Contains(h.opts.Loops, l.Name)
		if wanted && l.State != loop.Running {
			return fmt.Sprintf("loop %s is %s", l.Name, l.State)
		}
	}
	return ""
}

// ServeMetrics serves HTTP on addr until ctx ends: /metrics for Prometheus, with the figures of the
// whole database if the login has queue_viewer, /healthz (the process lives) and /readyz (200 if
// Ready returns "", otherwise 503 with its reason). It returns the address of the listener, which
// shows the port when addr has port 0. Give it a context that ends after Run has returned, so that
// the end of the host can be watched.
func (h *Host) ServeMetrics(ctx context.Context, addr string) (net.Addr, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, queue.NewError(queue.KindUsage, queue.Said(err).String(), "metrics_addr "+addr, "choose a free address such as 127.0.0.1:9187").Because(err)
	}
	registry := prometheus.NewRegistry()
	for _, c := range []prometheus.Collector{
		// Growth of the process shows in go_goroutines, process_resident_memory_bytes and
		// process_open_fds.
		collector{h}, &databaseCollector{client: h.client, log: h.log}, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	} {
		if err := registry.Register(c); err != nil {
			return nil, err
		}
	}
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) {
		if why := h.Ready(); why != "" {
			http.Error(w, queue.Clean(why).String(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ready")
	})
	// A client that sends nothing more keeps no connection: each takes a file descriptor, without which no work begins.
	s := &http.Server{Handler: mux, ReadTimeout: 5 * time.Second, WriteTimeout: 30 * time.Second, IdleTimeout: 2 * time.Minute}
	go func() {
		<-ctx.Done()
		_ = s.Close()
	}()
	go func() {
		if err := s.Serve(l); err != nil && !errors.Is(err, http.ErrServerClosed) {
			h.log.Error("the metrics server ended", "error", err.Error())
		}
	}()
	return l.Addr(), nil
}
