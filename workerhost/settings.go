package workerhost

// This file keeps the tick intervals, read again every few seconds and at once
// when a flag changes.

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/qtop/qtop/pgclient/pgpool"
)

// offEvery is how often a worker that is switched off is still asked for: its
// tick then beats as stopped, so that being off is no silence.
const offEvery = 10 * time.Second

type settings struct {
	pool     *pgpool.Pool
	mu       sync.Mutex
	interval map[string]time.Duration
	changed  chan struct{}
}

func (s *settings) stale() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.changed == nil {
		s.changed = make(chan struct{}, 1)
	}
	return s.changed
}

func (s *settings) invalidate() {
	s.stale()
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

func (s *settings) refresh(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	rows, err := s.pool.Query(ctx, `SELECT split_part(key, '.', 3), n FROM public.v_dot_config_number
		WHERE key LIKE 'queue.tick.%.interval_seconds' AND n IS NOT NULL`)
	if err != nil {
		return
	}
	next := map[string]time.Duration{}
	var name string
	var secs int
	_, err = pgx.ForEachRow(rows, []any{&name, &secs}, func() error {
		next[name] = time.Duration(secs) * time.Second
		return nil
	})
	if err != nil {
		return // the last known intervals stand
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.interval = next
}

func (s *settings) every(worker string) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	d, known := s.interval[worker]
	switch {
	case !known:
		return 5 * time.Second
	case d == 0:
		return offEvery
	}
	return d
}
