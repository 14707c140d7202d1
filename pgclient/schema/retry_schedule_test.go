package schema_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A retry schedule is a list of waits. The flag of a single job kind or webhook subscription
// overrides the common flag until it is set to "default".
func TestRetryScheduleFlags(t *testing.T) {
	c := newCore(t)
	admin := c.as("workflow_admin", "dot_executor")
	c.exec("INSERT INTO public.subscriptions (event_type, callback_url) VALUES ('order', 'http://127.0.0.1:1/')")
	for _, x := range []struct{ key, value, rule string }{
		{"webhook.retry_schedule", "5s 1m", ""},
		{"webhook.retry_schedule", "0s", ""},
		{"webhook.retry_schedule", "5s  1m", "invalid_value"},
		{"webhook.retry_schedule", "5s,1m", "invalid_value"},
		{"webhook.retry_schedule", "5", "invalid_value"},
		{"webhook.retry_schedule", "-5s", "invalid_value"},
		{"webhook.retry_schedule", "1.5h", "invalid_value"},
		{"webhook.retry_schedule", "1234567s", "invalid_value"},
		{"webhook.retry_schedule", "٣s", "invalid_value"},
		{"webhook.retry_schedule", "5s\n", "invalid_value"},
		{"webhook.retry_schedule", "", "invalid_value"},
		{"webhook.retry_schedule", "default", "invalid_value"},
		{"webhook.retry_schedule.1", "1h", ""},
		{"webhook.retry_schedule.2", "1h", "unknown_key"},
		{"webhook.retry_schedule.one", "1h", "unknown_key"},
		{"webhook.retry_schedule.", "1h", "unknown_key"},
		{"queue.retry.schedule.invoice", "2h", ""},
		{"queue.retry.schedule.invoice", "default", ""},
		{"queue.retry.schedule.invoice", "default", "unchanged"},
		{"queue.retry.schedule.in voice", "2h", "unknown_key"},
		{"webhook.max_attempts.1", "2", "unknown_key"},
	} {
		rule := setFlag(t, admin, x.key, x.value)["rule"]
		if x.rule == "" {
			require.Nil(t, rule, "%s = %q", x.key, x.value)
		} else {
			require.Equal(t, x.rule, rule, "%s = %q", x.key, x.value)
		}
	}
	require.Equal(t, 1, get[int](c, "SELECT count(*) FROM public.dot_config WHERE key LIKE 'webhook.retry_schedule.%'"), "what was refused left nothing behind")

	waits := func(key, own string, try int) int {
		return get[int](c, "SELECT (extract(epoch FROM public.fn_retry_wait($1, $2, $3)) * 1000)::int", key, own, try)
	}
	about := func(seconds, got int) {
		t.Helper()
		require.GreaterOrEqual(t, got, seconds*800)
		require.LessOrEqual(t, got, seconds*1200)
	}
	setFlag(t, admin, "webhook.retry_schedule", "5s 1m")
	about(3600, waits("webhook.retry_schedule", "1", 1))
	about(5, waits("webhook.retry_schedule", "2", 1))
	about(60, waits("webhook.retry_schedule", "2", 2))
	about(60, waits("webhook.retry_schedule", "2", 1000))
	setFlag(t, admin, "queue.retry.schedule", "7s")
	about(7, waits("queue.retry.schedule", "invoice", 3))
	c.exec("UPDATE public.dot_config SET value = 'soon' WHERE key IN ('queue.retry.schedule', 'webhook.retry_schedule.1')")
	about(5, waits("webhook.retry_schedule", "1", 1))
	about(10, waits("queue.retry.schedule", "invoice", 1))
	seen := map[int]bool{}
	for range 20 {
		seen[waits("webhook.retry_schedule", "2", 2)] = true
	}
	require.Greater(t, len(seen), 10, "jittered")
	require.Equal(t, "42:42:35 24:00:00", get[string](c, `SELECT string_agg(s, ' ' ORDER BY key DESC) FROM (SELECT key, sum(w::interval)::text AS s
		FROM public.dot_config_rule, unnest(string_to_array(default_value, ' ')) w WHERE kind = 'schedule' AND default_value <> 'default' GROUP BY key) x`))
}
