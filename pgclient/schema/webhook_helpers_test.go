// Helpers of the webhook tests: a database with one login that has all roles of workers and
// operators, and each step of the state machine as one call.

package schema_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/pgtest"
)

// hooks is a database with webhooks whose retries are due at once and whose circuits never open: a
// test calls the next tick instead of waiting.
type hooks struct {
	t    *testing.T
	db   *pgtest.DB
	root *pgxpool.Pool // superuser
	work *pgxpool.Pool // has all roles of workers, and the operator's
}

func newHooks(t *testing.T) *hooks {
	t.Helper()
	t.Parallel()
	db := pgtest.New(t)
	h := &hooks{t: t, db: db, root: db.Pool(t, "")}
	h.work = db.Pool(t, pgtest.Login(t, db, "event_ingest_writer", "subscription_admin", "router_worker",
		"saga_orchestrator", "webhook_worker", "lease_reset_cleaner", "dead_letter_operator"))
	h.flag("webhook.retry_schedule", "0s")
	h.flag("webhook.circuit_failures", "0")
	return h
}

func (h *hooks) flag(key, value string) {
	h.t.Helper()
	h.exec(`INSERT INTO public.dot_config (key, value, updated_by) VALUES ($1, $2, 'test')
		ON CONFLICT (key) DO UPDATE SET value = excluded.value, updated_by = excluded.updated_by`, key, value)
}

// exec runs a statement as superuser; an error fails the test.
func (h *hooks) exec(sql string, args ...any) {
	h.t.Helper()
	_, err := h.root.Exec(context.Background(), sql, args...)
	require.NoError(h.t, err)
}

// asOwner runs a statement with the rights of qtop's functions, for changes that no other role may
// make.
func (h *hooks) asOwner(sql string, args ...any) (err error) {
	h.t.Helper()
	return pgx.BeginFunc(context.Background(), h.root, func(tx pgx.Tx) error {
		if _, err := tx.Exec(context.Background(), "SET LOCAL ROLE queue_owner"); err != nil {
			return err
		}
		_, err := tx.Exec(context.Background(), sql, args...)
		return err
	})
}

// one returns the single value that a query gives, as superuser.
func one[T any](h *hooks, sql string, args ...any) T {
	h.t.Helper()
	var v T
	require.NoError(h.t, h.root.QueryRow(context.Background(), sql, args...).Scan(&v))
	return v
}

// call runs a function that returns jsonb, with the login of the workers.
func (h *hooks) call(expr string, args ...any) map[string]any {
	h.t.Helper()
	got, err := tryCall(h.work, expr, args...)
	require.NoError(h.t, err)
	return got
}

func tryCall(pool *pgxpool.Pool, expr string, args ...any) (map[string]any, error) {
	var raw []byte
	if err := pool.QueryRow(context.Background(), "SELECT "+expr, args...).Scan(&raw); err != nil {
		return nil, err
	}
	out := map[string]any{}
	return out, json.Unmarshal(raw, &out)
}

func (h *hooks) subscribe(eventType string) int64 {
	h.t.Helper()
	var id int64
	require.NoError(h.t, h.work.QueryRow(context.Background(),
		`INSERT INTO public.subscriptions (event_type, callback_url, verified) VALUES ($1, 'http://127.0.0.1:1/hook', true)
		 RETURNING id`, eventType).Scan(&id))
	return id
}

func (h *hooks) emit(eventType string, n int) {
	h.t.Helper()
	_, err := h.work.Exec(context.Background(), `INSERT INTO public.events (event_type, payload)
		SELECT $1, jsonb_build_object('n', i) FROM generate_series(1, $2) i`, eventType, n)
	require.NoError(h.t, err)
}

// route runs the router until no event is left or held back; the open transaction of another test
// may hold events back for a moment.
func (h *hooks) route() (sagas int) {
	h.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; {
		got := h.call("public.fn_webhook_router_run()")
		sagas += num(got, "sagas")
		if num(got, "held") == 0 && num(got, "events") == 0 {
			return sagas
		}
		require.True(h.t, time.Now().Before(deadline), "held for 30 s: %v", got)
	}
}

// step routes all events and runs the orchestrator once.
func (h *hooks) step() map[string]any {
	h.t.Helper()
	h.route()
	return h.call("public.fn_saga_orchestrator_run()")
}

type lease struct {
	Job, Saga  int64
	Attempt    int
	Token      string
	WebhookID  string
	Payload    string
	Subscribed int64
}

func (h *hooks) claim(n int) []lease {
	h.t.Helper()
	got, err := tryClaim(h.work, n)
	require.NoError(h.t, err)
	return got
}

func tryClaim(pool *pgxpool.Pool, n int) ([]lease, error) {
	rows, err := pool.Query(context.Background(), `SELECT job_id, saga_id, attempt_no, lease_token::text, webhook_id,
		payload, subscription_id FROM public.fn_webhook_job_claim('test', $1)`, n)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[lease])
}

// result returns the report for a lease; code "" = delivered.
func result(l lease, code string) map[string]any {
	r := map[string]any{"job_id": l.Job, "lease_token": l.Token, "delivered": code == "", "took_ms": 1.5}
	if code == "" {
		r["status"] = 204
	} else {
		r["code"] = code
	}
	return r
}

func (h *hooks) report(results ...map[string]any) []string {
	h.t.Helper()
	got, err := tryReport(h.work, results...)
	require.NoError(h.t, err)
	return got
}

func tryReport(pool *pgxpool.Pool, results ...map[string]any) ([]string, error) {
	rows, err := pool.Query(context.Background(), "SELECT outcome FROM public.fn_webhook_job_report($1)", results)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

func (h *hooks) finish(code string, leases ...lease) {
	h.t.Helper()
	results := make([]map[string]any, len(leases))
	for i, l := range leases {
		results[i] = result(l, code)
	}
	for _, outcome := range h.report(results...) {
		require.Equal(h.t, "done", outcome)
	}
}

func (h *hooks) expireLeases() {
	h.t.Helper()
	require.NoError(h.t, h.asOwner(`UPDATE public.webhook_delivery_jobs SET lease_until = now() - interval '1 second'
		WHERE status = 'Leased'`))
}

// die makes n dead letters of a new subscription and returns their ids.
func (h *hooks) die(eventType string, n int) (subscription int64, deadLetters []int64) {
	h.t.Helper()
	subscription = h.subscribe(eventType)
	h.exec("UPDATE public.subscriptions SET max_attempts = 1 WHERE id = $1", subscription)
	h.emit(eventType, n)
	for done := 0; done < n; {
		h.step()
		leases := h.claim(10000)
		require.NotEmpty(h.t, leases)
		h.finish("HTTP_500", leases...)
		done += len(leases)
	}
	h.call("public.fn_saga_orchestrator_run(100000)")
	return subscription, one[[]int64](h, "SELECT array_agg(id ORDER BY id) FROM public.dead_letters WHERE subscription_id = $1", subscription)
}

func (h *hooks) requeue(deadLetters ...int64) map[string]any {
	h.t.Helper()
	return h.call("public.fn_dead_letter_requeue($1, 'ann', 'receiver is back')", deadLetters)
}

// refused requires that err is an error of PostgreSQL with this SQLSTATE.
func refused(t *testing.T, state string, err error, what string) {
	t.Helper()
	var pg *pgconn.PgError
	require.ErrorAs(t, err, &pg, what)
	require.Equal(t, state, pg.Code, "%s: %s", what, pg.Message)
}

func results(t *testing.T, answer map[string]any) []map[string]any {
	t.Helper()
	list, ok := answer["results"].([]any)
	require.True(t, ok, fmt.Sprint(answer))
	out := make([]map[string]any, len(list))
	for i, r := range list {
		out[i] = r.(map[string]any)
	}
	return out
}

func num(answer map[string]any, key string) int {
	v, _ := answer[key].(float64)
	return int(v)
}
