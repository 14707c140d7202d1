package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// produce inserts webhook events and outbox events until ctx ends. It first inserts a backlog, so
// that the console shows some work at once.
func produce(ctx context.Context, pool *pgxpool.Pool) error {
	for t, n := range map[string]int{"shipment.sent": 60, "user.invited": 12, "order.created": 25} {
		for range n {
			if err := insertEvent(ctx, pool, t); err != nil {
				return err
			}
		}
	}
	next, outbox := map[string]time.Time{}, time.Time{}
	return every(ctx, 50*time.Millisecond, func() error {
		now := time.Now()
		for t, mean := range steady() {
			if now.Before(next[t]) {
				continue
			}
			next[t] = now.Add(mean/2 + rand.N(mean))
			if err := insertEvent(ctx, pool, t); err != nil {
				return err
			}
		}
		if now.After(outbox) {
			outbox = now.Add(1500 * time.Millisecond)
			if err := emit(ctx, pool); err != nil {
				return err
			}
		}
		return nil
	})
}

// every runs step now and then once per interval d, until ctx ends or step fails.
func every(ctx context.Context, d time.Duration, step func() error) error {
	tick := time.NewTicker(d)
	defer tick.Stop()
	for {
		if err := step(); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func insertEvent(ctx context.Context, pool *pgxpool.Pool, eventType string) error {
	payload, err := json.Marshal(map[string]any{
		"type": eventType, "timestamp": time.Now().UTC().Format(time.RFC3339),
		"data": map[string]any{
			"id": fmt.Sprintf("%s_%06d", eventType[:3], rand.IntN(1_000_000)), "amount": json.Number(fmt.Sprintf("%d.%02d", rand.IntN(900), rand.IntN(100))),
			"customer": map[string]any{"name": "Example Ltd", "api_key": "demo-not-a-real-key"},
		},
	})
	if err != nil {
		return err
	}
	_, err = pool.Exec(ctx, "INSERT INTO public.events (event_type, payload) VALUES ($1, $2)", eventType, payload)
	return err
}

func emit(ctx context.Context, pool *pgxpool.Pool) error {
	kinds := [][2]string{{"document_saved", "update"}, {"comment_added", "comment"}, {"template.instance_auto_composed", "update"}}
	k := kinds[rand.IntN(len(kinds))]
	_, err := pool.Exec(ctx, "SELECT public.fn_iu_emit_event('iu', $1::text, $2::text, 'delayed', 'info', 'information_unit', $3::text, jsonb_build_object('pieces', $4::int), NULL::text, NULL::text, now())",
		k[0], k[1], fmt.Sprintf("iu-%05d", rand.IntN(90_000)), rand.IntN(5)+1)
	return err
}

// heartbeat records the heartbeats of the healthy executors.
func heartbeat(ctx context.Context, pool *pgxpool.Pool) error {
	done := map[string]int{}
	return every(ctx, 10*time.Second, func() error {
		for _, id := range []string{"kg_indexer_a", "codex_nightly"} {
			state := "idle"
			if id == "kg_indexer_a" {
				state = "working"
				done[id] += rand.IntN(20)
			}
			payload := map[string]any{"state": state, "done_total": done[id], "in_flight": 0, "last_work_at": time.Now().UTC().Format(time.RFC3339)}
			if _, err := pool.Exec(ctx, "SELECT public.fn_queue_heartbeat_write($1::text, $2::jsonb, $1::text)", id, payload); err != nil {
				return err
			}
		}
		return nil
	})
}
