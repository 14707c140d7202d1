// dot_config: what fn_dot_config_set accepts, who is notified of a change, and how flags revert.

package schema_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/pgtest"
)

func setFlag(t *testing.T, pool *pgxpool.Pool, key, value string) map[string]any {
	t.Helper()
	return call(t, pool, "public.fn_dot_config_set($1, $2, 'ann', 'test')", key, value)
}

func TestConfigValidation(t *testing.T) {
	c := newCore(t)
	admin := c.as("workflow_admin")
	for _, tc := range []struct{ key, value, rule string }{
		{"webhook.worker.enabled", "false", ""},
		{"webhook.worker.enabled", "false", "unchanged"},
		{"webhook.worker.enabled", "True", "invalid_value"},
		{"webhook.worker.enabled", "0", "invalid_value"},
		{"webhook.worker.enabled", "", "invalid_value"},
		{"webhook.max_attempts", "3", ""},
		{"webhook.max_attempts", "-1", "invalid_value"},
		{"webhook.max_attempts", "3.5", "invalid_value"},
		{"webhook.max_attempts", " 3", "invalid_value"},
		{"webhook.max_attempts", "٣", "invalid_value"},
		{"webhook.max_attempts", "1234567890", "invalid_value"},
		{"webhook.max_attempts", "3\n", "invalid_value"},
		{"queue.scheduler.mode", "hybrid", ""},
		{"queue.scheduler.mode", "Hybrid", "invalid_value"},
		{"queue.tick.webhook_router.interval_seconds", "0", ""},
		{"queue.tick.webhook_router.interval_seconds", "soon", "invalid_value"},
		{"queue.tick.no_such_worker.interval_seconds", "5", "unknown_key"},
		{"webhook.worker.enable", "true", "unknown_key"},
		{"queue.tick.stale_heartbeat_check.interval_seconds", "150", "conflict"},
		{"queue.tick.stale_heartbeat_check.interval_seconds", "149", ""},
		{"queue.heartbeat.stale_threshold_seconds", "298", "conflict"},
		{"queue.heartbeat.stale_threshold_seconds", "299", ""},
		{"queue.heartbeat.stale_threshold_seconds", "0", "invalid_value"},
		{"webhook.lease_seconds", "39", "conflict"},
		{"webhook.lease_seconds", "40", ""},
		{"webhook.timeout_seconds", "31", "conflict"},
		{"webhook.timeout_seconds", "0", "invalid_value"},
		{"webhook.timeout_seconds", "29", ""},
		{"queue.retry.max_attempts_default", "0", "invalid_value"},
		{"queue.retry.max_attempts_default", "1001", "invalid_value"},
		{"queue.retry.max_attempts_default", "1000", ""},
		{"queue.lease.duration_seconds", "00", "invalid_value"},
		{"queue.lease.duration_seconds", "1", ""},
	} {
		got := setFlag(t, admin, tc.key, tc.value)
		if tc.rule == "" {
			require.Equal(t, tc.value, got["after"], "%s = %q: %v", tc.key, tc.value, got)
			require.Equal(t, tc.value, get[string](c, "SELECT value FROM public.dot_config WHERE key = $1", tc.key))
		} else {
			require.Equal(t, tc.rule, got["rule"], "%s = %q: %v", tc.key, tc.value, got)
			require.NotEmpty(t, got["reason"])
		}
		require.NotNil(t, got["audit_id"], "also a refusal is audited: %v", got)
	}
	for _, when := range []string{"now() - interval '1 second'", "'-infinity'"} {
		got := call(t, admin, "public.fn_dot_config_set('webhook.max_attempts', '7', 'ann', 'test', "+when+")")
		require.Equal(t, "expiry_in_the_past", got["rule"])
	}
	got := call(t, admin, "public.fn_dot_config_set('webhook.max_attempts', '7', 'ann', 'test', 'infinity')")
	require.Equal(t, "expiry_too_far", got["rule"], "no client can read an infinite time")
	got = call(t, admin, "public.fn_dot_config_set('queue.tick.config_expiry.interval_seconds', '0', 'ann', 'test', now() + interval '1 hour')")
	require.Equal(t, "conflict", got["rule"], "who brings values back cannot bring itself back")
	for _, bad := range []string{"'k', 'v', '', 'r'", "'k', 'v', 'ann', ' '", "NULL, 'v', 'ann', 'r'", "'k', NULL, 'ann', 'r'",
		"'k', 'v', NULL, 'r'", "'k', 'v', repeat('x', 201), 'r'", "'k', 'v', 'ann', repeat('x', 2001)"} {
		fails(t, admin, "22023", "SELECT public.fn_dot_config_set("+bad+")")
	}
	require.Zero(t, get[int](c, `SELECT count(*) FROM public.dot_config_rule r FULL JOIN public.dot_config d USING (key)
		WHERE r.key IS NULL OR d.key IS NULL OR d.description = ''`), "each rule has its row")
}

func TestConfigNeedsWorkflowAdmin(t *testing.T) {
	c := newCore(t)
	other := c.as("queue_viewer", "dot_executor", "dead_letter_operator", "event_ingest_writer", "router_worker",
		"saga_orchestrator", "webhook_worker", "lease_reset_cleaner", "subscription_admin")
	fails(t, other, "42501", "SELECT public.fn_dot_config_set('webhook.worker.enabled', 'false', 'eve', 'no')")
	admin := c.as("workflow_admin")
	for _, pool := range []*pgxpool.Pool{other, admin} {
		fails(t, pool, "42501", "UPDATE public.dot_config SET value = 'false' WHERE key = 'webhook.worker.enabled'")
		fails(t, pool, "42501", "DELETE FROM public.dot_config")
		fails(t, pool, "42501", "INSERT INTO public.queue_operator_action (actor, action, target, outcome) VALUES ('a', 'b', 'c', 'd')")
		fails(t, pool, "42501", "DELETE FROM public.dot_config_revert")
	}
}

// A change and its audit row are committed together or not at all.
func TestConfigAudit(t *testing.T) {
	c := newCore(t)
	login := pgtest.Login(t, c.db, "workflow_admin")
	admin := c.db.Pool(t, login)
	const key = "webhook.worker.enabled"
	state := func() string {
		return get[string](c, `SELECT value || ' ' || (SELECT count(*) FROM public.queue_operator_action WHERE target = key)
			FROM public.dot_config WHERE key = $1`, key)
	}
	tx := c.begin(admin)
	_, err := tx.Exec(context.Background(), "SELECT public.fn_dot_config_set($1, 'false', 'ann', 'maintenance')", key)
	require.NoError(t, err)
	require.NoError(t, tx.Rollback(context.Background()))
	require.Equal(t, "true 0", state(), "rolled back: neither")

	conn := c.db.Conn(t, login)
	_, err = conn.Exec(context.Background(), "BEGIN")
	require.NoError(t, err)
	_, err = conn.Exec(context.Background(), "SELECT public.fn_dot_config_set($1, 'false', 'ann', 'maintenance')", key)
	require.NoError(t, err)
	c.exec("SELECT pg_terminate_backend($1, 10000)", conn.PgConn().PID())
	require.Equal(t, "true 0", state(), "killed between: neither")

	got := setFlag(t, admin, key, "false")
	require.Equal(t, "false 1", state())
	var actor, role, action, reason, before, after, outcome string
	require.NoError(t, c.root.QueryRow(context.Background(), `SELECT actor, db_role, action, reason, before ->> 'value',
		after ->> 'value', outcome FROM public.queue_operator_action WHERE id = $1`, int64(num(got, "audit_id"))).
		Scan(&actor, &role, &action, &reason, &before, &after, &outcome))
	require.Equal(t, []string{"ann", login, "flag_set", "test", "true", "false", "done"},
		[]string{actor, role, action, reason, before, after, outcome})
	for _, sql := range []string{"UPDATE public.queue_operator_action SET actor = 'bob'", "DELETE FROM public.queue_operator_action", "TRUNCATE public.queue_operator_action"} {
		fails(t, c.root, "42501", sql)
		fails(t, c.root, "42501", "SET LOCAL ROLE queue_owner; "+sql)
	}
}

func TestConfigCompareAndSet(t *testing.T) {
	c := newCore(t)
	admin := c.as("workflow_admin")
	const set = "public.fn_dot_config_set('webhook.max_attempts', $1, $2, 'why', NULL, $3)"
	seen := get[time.Time](c, "SELECT updated_at FROM public.dot_config WHERE key = 'webhook.max_attempts'")
	require.Equal(t, "7", call(t, admin, set, "7", "ann", seen)["after"])
	got := call(t, admin, set, "8", "bob", seen)
	require.Equal(t, "changed", got["rule"])
	require.Regexp(t, `was changed to "7" by ann at \d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ`, got["reason"])
	require.Equal(t, "ann", got["updated_by"])
	require.Equal(t, "7", get[string](c, "SELECT value FROM public.dot_config WHERE key = 'webhook.max_attempts'"))
	require.Equal(t, "refused: changed", get[string](c, "SELECT outcome FROM public.queue_operator_action ORDER BY id DESC LIMIT 1"))
	// the clock of the server went back before the last change
	got = call(t, admin, set, "8", "bob", get[time.Time](c, "SELECT updated_at + interval '10 seconds' FROM public.dot_config WHERE key = 'webhook.max_attempts'"))
	require.Equal(t, "changed", got["rule"])
	require.Equal(t, "8", call(t, admin, set, "8", "bob", get[time.Time](c, "SELECT updated_at FROM public.dot_config WHERE key = 'webhook.max_attempts'"))["after"])
}

// 64 sessions that read the same row set the flag at once: one changes it, all others are refused
// with "changed".
func TestConfigManyOperators(t *testing.T) {
	c := newCore(t)
	pool := c.wide(64, "workflow_admin")
	seen := get[time.Time](c, "SELECT updated_at FROM public.dot_config WHERE key = 'webhook.max_attempts'")
	got := together(t, 64, func(i int) (map[string]any, error) {
		return tryCall(pool, "public.fn_dot_config_set('webhook.max_attempts', $1, $2, 'race', NULL, $3)", fmt.Sprint(100+i), fmt.Sprint("op", i), seen)
	})
	require.Equal(t, 63, count(got, "rule", "changed"))
	require.Equal(t, "63 1", get[string](c, `SELECT count(*) FILTER (WHERE outcome = 'refused: changed') || ' ' ||
		count(*) FILTER (WHERE outcome = 'done') FROM public.queue_operator_action`))
	for i, g := range got {
		if g["refused"] == nil {
			require.Equal(t, fmt.Sprint(100+i), get[string](c, "SELECT value FROM public.dot_config WHERE key = 'webhook.max_attempts'"))
		}
	}
}

// Flags that limit each other are changed one after the other: two changes that are each valid
// alone never leave an invalid pair.
func TestConfigCoupledKeys(t *testing.T) {
	c := newCore(t)
	pool := c.wide(16, "workflow_admin")
	together(t, 16, func(i int) (map[string]any, error) {
		if i%2 == 0 {
			return tryCall(pool, "public.fn_dot_config_set('webhook.lease_seconds', '40', 'ann', 'r')")
		}
		return tryCall(pool, "public.fn_dot_config_set('webhook.timeout_seconds', '50', 'bob', 'r')")
	})
	require.True(t, get[bool](c, `SELECT (SELECT value::int FROM public.dot_config WHERE key = 'webhook.lease_seconds')
		>= 10 + (SELECT value::int FROM public.dot_config WHERE key = 'webhook.timeout_seconds')`))
}

func TestConfigExpiry(t *testing.T) {
	c := newCore(t)
	admin, exec := c.as("workflow_admin"), c.as("dot_executor")
	const key = "webhook.worker.enabled"
	setFor := func(value string) {
		t.Helper()
		got := call(t, admin, "public.fn_dot_config_set($1, $2, 'ann', 'for a while', now() + interval '1 hour')", key, value)
		require.NotNil(t, got["reverts_at"], got)
	}
	due := func() { c.exec("UPDATE public.dot_config_revert SET revert_at = now() - interval '1 second'") }
	expire := func() string { return fmt.Sprint(call(t, exec, "public.fn_dot_config_expire()")) }
	value := func() string { return get[string](c, "SELECT value FROM public.dot_config WHERE key = $1", key) }

	setFor("false")
	require.Equal(t, "map[dropped:0 held:0 reverted:0]", expire(), "not due yet")
	setFor("false") // a later expiry: the flag still reverts to its value from before the first change
	due()
	require.Equal(t, "map[dropped:0 held:0 reverted:1]", expire())
	require.Equal(t, "true", value())
	require.Equal(t, "flag_revert ann expired: for a while", get[string](c,
		"SELECT action || ' ' || actor || ' ' || reason FROM public.queue_operator_action ORDER BY id DESC LIMIT 1"))

	setFor("false")
	require.Equal(t, "false", setFlag(t, admin, key, "false")["after"], "the same value, to stay")
	require.Zero(t, get[int](c, "SELECT count(*) FROM public.dot_config_revert"), "a later set cancels the revert")

	setFlag(t, admin, key, "true")
	setFor("false")
	c.exec("UPDATE public.dot_config SET value = 'false' WHERE key = $1", key)
	require.Zero(t, get[int](c, "SELECT count(*) FROM public.dot_config_revert"), "so does a write by hand")

	setFlag(t, admin, key, "true")
	setFor("false")
	due()
	// The row was changed without triggers: the revert leaves such a change alone.
	require.NoError(t, pgx.BeginFunc(context.Background(), c.root, func(tx pgx.Tx) error {
		_, err := tx.Exec(context.Background(), "SET LOCAL session_replication_role = replica; UPDATE public.dot_config SET updated_at = now() WHERE key = '"+key+"'")
		return err
	}))
	require.Equal(t, "map[dropped:1 held:0 reverted:0]", expire())
	require.Equal(t, "false", value())
}

// A flag that was changed for a while follows a default that a release changes, after the revert
// and before it.
func TestConfigExpiryToDefault(t *testing.T) {
	c := newCore(t)
	const key = "webhook.max_attempts"
	seed := func(value string) {
		c.exec("SELECT public.fn_dot_config_seed($1::text, 'integer', $2::text, '')", key, value)
	}
	// forAWhile sets the flag for a while; the default becomes value before or after the revert
	forAWhile := func(actor, value string, before bool) {
		t.Helper()
		call(t, c.root, "public.fn_dot_config_set($1::text, '3', $2::text, 'for a while', now() + interval '1 hour')", key, actor)
		if before {
			seed(value)
		}
		c.exec("UPDATE public.dot_config_revert SET revert_at = now()")
		require.EqualValues(t, 1, call(t, c.root, "public.fn_dot_config_expire()")["reverted"])
		if !before {
			seed(value)
		}
	}
	for _, before := range []bool{false, true} {
		forAWhile("ann", map[bool]string{false: "7", true: "8"}[before], before)
		require.Equal(t, map[bool]string{false: "7 migration", true: "8 ann"}[before], get[string](c, "SELECT value || ' ' || updated_by FROM public.dot_config WHERE key = $1", key))
	}
	seed("9")
	require.Equal(t, "9", get[string](c, "SELECT value FROM public.dot_config WHERE key = $1", key), "again, after the revert")

	// what a person set stays, also if it is the default
	for _, chosen := range []string{"4", "9"} {
		for _, before := range []bool{false, true} {
			seed("9")
			setFlag(t, c.root, key, "5")
			setFlag(t, c.root, key, chosen)
			forAWhile("bob", "11", before)
			require.Equal(t, chosen+" bob", get[string](c, "SELECT value || ' ' || updated_by FROM public.dot_config WHERE key = $1", key), before)
		}
	}
}

// After a revert to the default the snapshot says who had set the flag for a while, and why; after a
// release has changed the default it says nothing about that.
func TestConfigRevertIsExplained(t *testing.T) {
	c := newCore(t)
	const key = "webhook.max_attempts"
	shown := func() string {
		return get[string](c, `SELECT concat_ws(', ', f ->> 'value', f ->> 'updated_by', f ->> 'reason')
			FROM jsonb_array_elements(public.fn_queue_snapshot('0') -> 'flags') f WHERE f ->> 'key' = $1`, key)
	}
	call(t, c.root, "public.fn_dot_config_set($1::text, '3', 'ann', 'for a while', now() + interval '1 hour')", key)
	c.exec("UPDATE public.dot_config_revert SET revert_at = now()")
	call(t, c.root, "public.fn_dot_config_expire()")
	require.Equal(t, "10, ann, expired: for a while", shown())
	c.exec("SELECT public.fn_dot_config_seed($1::text, 'integer', '7', '')", key)
	require.Equal(t, "7, migration, ", shown())
}

// A revert that would contradict another flag waits, and the snapshot shows it as overdue.
func TestConfigRevertHeld(t *testing.T) {
	c := newCore(t)
	admin := c.as("workflow_admin")
	call(t, admin, "public.fn_dot_config_set('webhook.lease_seconds', '90', 'ann', 'r', now() + interval '1 hour')")
	setFlag(t, admin, "webhook.timeout_seconds", "60")
	c.exec("UPDATE public.dot_config_revert SET revert_at = now() - interval '1 second'")
	require.EqualValues(t, 1, call(t, c.root, "public.fn_dot_config_expire()")["held"])
	require.Equal(t, "90", get[string](c, "SELECT value FROM public.dot_config WHERE key = 'webhook.lease_seconds'"))
	require.True(t, get[bool](c, `SELECT (f ->> 'overdue')::bool FROM jsonb_array_elements(public.fn_queue_snapshot('0') -> 'flags') f
		WHERE f ->> 'key' = 'webhook.lease_seconds'`))
	setFlag(t, admin, "webhook.timeout_seconds", "30")
	require.EqualValues(t, 1, call(t, c.root, "public.fn_dot_config_expire()")["reverted"])
}

// Sets and expiries of the same flag at the same time never deadlock.
func TestConfigExpiryAgainstSet(t *testing.T) {
	c := newCore(t)
	pool := c.wide(8, "workflow_admin", "dot_executor")
	for range 5 {
		call(t, pool, "public.fn_dot_config_set('webhook.worker.enabled', 'false', 'ann', 'r', $1)", time.Now().Add(time.Hour))
		c.exec("UPDATE public.dot_config_revert SET revert_at = now()")
		together(t, 8, func(i int) (map[string]any, error) {
			if i%2 == 0 {
				return tryCall(pool, "public.fn_dot_config_expire()")
			}
			return tryCall(pool, "public.fn_dot_config_set('webhook.worker.enabled', 'false', 'bob', 'r', $1)", time.Now().Add(time.Hour))
		})
	}
}

// The owner may write rows directly; each such write is stamped and audited, and no setting of the
// session prevents that.
func TestConfigByHand(t *testing.T) {
	c := newCore(t)
	byHand := func(sql string) {
		require.NoError(t, pgx.BeginFunc(context.Background(), c.root, func(tx pgx.Tx) error {
			_, err := tx.Exec(context.Background(), "SET LOCAL qtop.config_set = 'on'; SET LOCAL ROLE queue_owner; "+sql)
			return err
		}))
	}
	last := func() string {
		return get[string](c, `SELECT concat_ws(' ', action, target, actor, before ->> 'value', after ->> 'value')
			FROM public.queue_operator_action ORDER BY id DESC LIMIT 1`)
	}
	byHand("UPDATE public.dot_config SET value = '9', updated_by = 'nobody', updated_at = '2020-01-01' WHERE key = 'webhook.max_attempts'")
	require.Equal(t, "flag_set webhook.max_attempts postgres 10 9", last())
	require.Equal(t, "postgres true", get[string](c, `SELECT updated_by || ' ' || (updated_at > now() - interval '1 minute')
		FROM public.dot_config WHERE key = 'webhook.max_attempts'`))
	byHand("INSERT INTO public.dot_config (key, value) VALUES ('by.hand', 'x')")
	require.Equal(t, "flag_set by.hand postgres x", last())
	byHand("DELETE FROM public.dot_config WHERE key = 'by.hand'")
	require.Equal(t, "flag_set by.hand postgres x", last())
	byHand("TRUNCATE public.dot_config")
	require.Equal(t, "flag_set (all flags) postgres", last())
	require.Equal(t, "false", setFlag(t, c.as("workflow_admin"), "webhook.worker.enabled", "false")["after"], "a missing row comes back")
}

// An unreadable value counts as the safe value, and the snapshot shows it as invalid.
func TestConfigUnreadable(t *testing.T) {
	c := newCore(t)
	c.exec("UPDATE public.dot_config SET value = 'yes' WHERE key IN ('webhook.worker.enabled', 'queue.notify.bridge_enabled')")
	c.exec("UPDATE public.dot_config SET value = 'lots' WHERE key IN ('webhook.max_attempts', 'queue.tick.webhook_router.interval_seconds')")
	require.False(t, get[bool](c, "SELECT public.fn_cfg_bool('webhook.worker.enabled') OR public.fn_queue_notify_enabled() OR public.fn_cfg_bool('no.such')"))
	require.Equal(t, 42, get[int](c, "SELECT public.fn_cfg_int('webhook.max_attempts', 42)"))
	require.Equal(t, "off", call(t, c.root, "public.fn_queue_tick_request('webhook_router', 'operator')")["skipped"])
	require.Equal(t, []string{"queue.notify.bridge_enabled", "queue.tick.webhook_router.interval_seconds", "webhook.max_attempts", "webhook.worker.enabled"},
		get[[]string](c, `SELECT array_agg(f ->> 'key' ORDER BY f ->> 'key') FROM jsonb_array_elements(public.fn_queue_snapshot('0') -> 'flags') f
			WHERE (f ->> 'invalid')::bool`))
	for value, n := range map[string]int{"": 42, "-1": 42, " 3": 42, "3.5": 42, "٣": 42, "3\n": 42, "1234567890": 42, "7": 7, "000000007": 7} {
		c.exec("UPDATE public.dot_config SET value = $1 WHERE key = 'webhook.max_attempts'", value)
		require.Equal(t, n, get[int](c, "SELECT public.fn_cfg_int('webhook.max_attempts', 42)"), "%q", value)
		require.Equal(t, n == 42, get[bool](c, `SELECT (f ->> 'invalid')::bool FROM json_array_elements(public.fn_snapshot_flags()) f
			WHERE f ->> 'key' = 'webhook.max_attempts'`), "%q", value)
	}
	// A flag with an unreadable value can still be set until a time, and reverts.
	admin := c.as("workflow_admin")
	call(t, admin, "public.fn_dot_config_set('webhook.max_attempts', '2', 'ann', 'r', now() + interval '1 hour')")
	c.exec("UPDATE public.dot_config_revert SET revert_at = now()")
	require.EqualValues(t, 1, call(t, c.root, "public.fn_dot_config_expire()")["reverted"])
}

// A login may have quote_all_identifiers set, which changes how names are written in the call
// stack: a write through a function still does not count as a direct write.
func TestConfigSetWhileNamesAreQuoted(t *testing.T) {
	c := newCore(t)
	login := pgtest.Login(t, c.db, "workflow_admin", "dot_executor")
	c.exec("ALTER ROLE " + login + " SET quote_all_identifiers = on")
	pool := c.db.Pool(t, login)
	require.Nil(t, setFlag(t, pool, "webhook.max_attempts", "7")["rule"])
	require.Equal(t, "ann", get[string](c, "SELECT updated_by FROM public.dot_config WHERE key = 'webhook.max_attempts'"))
	require.Equal(t, "ann: test", get[string](c, "SELECT string_agg(actor || ': ' || reason, ', ') FROM public.queue_operator_action WHERE action = 'flag_set'"))

	call(t, pool, "public.fn_queue_heartbeat_register('e', 'DOT', '{}', 30, 600, 'ann')")
	call(t, pool, "public.fn_job_subscription_set('e', 'k', NULL, 0, 10, true, NULL, 'ann', 'test')")
	c.exec("SELECT public.fn_job_enqueue('k', 'iu', 'DOT')")
	var outcome string
	require.NoError(t, pool.QueryRow(context.Background(), `WITH j AS MATERIALIZED (SELECT array_agg(job_id) AS ids, array_agg(lease_token) AS tokens FROM public.fn_job_claim('e'))
		SELECT a.outcome FROM j, public.fn_job_ack(j.ids, j.tokens) a`).Scan(&outcome))
	require.Equal(t, "done", outcome)
}
