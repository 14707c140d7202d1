// Every numeric flag has two bounds: a value beyond one is refused when it is set; a stored value
// beyond one counts as that bound, and the console shows it.

package schema_test

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

type bound struct {
	key             string
	lowest, highest int
}

func (c *core) bounds() []bound {
	c.t.Helper()
	rows, err := c.root.Query(c.t.Context(), "SELECT key, lowest, highest FROM public.dot_config_rule WHERE kind = 'integer' ORDER BY key")
	require.NoError(c.t, err)
	defer rows.Close()
	var all []bound
	for rows.Next() {
		var b bound
		require.NoError(c.t, rows.Scan(&b.key, &b.lowest, &b.highest), "a flag without bounds")
		all = append(all, b)
	}
	require.NoError(c.t, rows.Err())
	require.Greater(c.t, len(all), 30)
	return all
}

func TestEveryNumberHasTwoBounds(t *testing.T) {
	c := newCore(t)
	admin := c.as("workflow_admin")
	for _, b := range c.bounds() {
		before := get[string](c, "SELECT value FROM public.dot_config WHERE key = $1", b.key)
		beyond := map[int]bool{b.highest + 1: true, 1000000: b.highest < 1000000}
		if b.lowest > 0 {
			beyond[b.lowest-1], beyond[0] = true, true
		}
		for n, refused := range beyond {
			if !refused {
				continue
			}
			value := strconv.Itoa(n)
			got := setFlag(t, admin, b.key, value)
			require.Equal(t, "invalid_value", got["rule"], "%s = %s: %v", b.key, value, got)
			if len(value) <= 9 {
				require.Contains(t, got["reason"], "from "+strconv.Itoa(b.lowest)+" to "+strconv.Itoa(b.highest))
			}
		}
		for _, n := range []int{b.lowest, b.highest} {
			got := setFlag(t, admin, b.key, strconv.Itoa(n))
			require.Contains(t, []any{nil, "conflict", "unchanged"}, got["rule"], "%s = %d: %v", b.key, n, got)
			if got["rule"] == "conflict" {
				require.NotContains(t, got["reason"], "below 0", "%s = %d", b.key, n)
			}
		}
		c.exec("UPDATE public.dot_config SET value = $2 WHERE key = $1", b.key, before)
	}
	require.Equal(t, "conflict", setFlag(t, admin, "queue.heartbeat.stale_threshold_seconds", "240")["rule"])
	require.Contains(t, setFlag(t, admin, "queue.heartbeat.stale_threshold_seconds", "240")["reason"], "a threshold above 240 s")
	require.Contains(t, setFlag(t, admin, "queue.tick.stale_heartbeat_check.interval_seconds", "150")["reason"], "at most 149 s")
}

// Values to which the documents give a meaning, such as 0, remain legal.
func TestBoundsKeepWhatHasAMeaning(t *testing.T) {
	c := newCore(t)
	admin := c.as("workflow_admin")
	for key, value := range map[string]string{
		"queue.heartbeat.stale_threshold_seconds": "999999999", "queue.tick.metrics_sampler.interval_seconds": "0",
		"retention.jobs_days": "0", "webhook.circuit_failures": "0",
	} {
		require.Equal(t, value, setFlag(t, admin, key, value)["after"], key)
	}
}

// A value beyond a bound, stored by an older release or by a direct write to the table, counts as
// the nearest bound, and the console shows it.
func TestStoredBeyondABound(t *testing.T) {
	c := newCore(t)
	all := c.bounds()
	for _, value := range []string{"999999999", "0"} {
		c.exec("UPDATE public.dot_config c SET value = $1 FROM public.dot_config_rule r WHERE r.key = c.key AND r.kind = 'integer'", value)
		n, _ := strconv.Atoi(value)
		invalid := get[[]string](c, `SELECT COALESCE(array_agg(f ->> 'key'), '{}') FROM jsonb_array_elements(public.fn_queue_snapshot('0') -> 'flags') f
			WHERE (f ->> 'invalid')::bool`)
		for _, b := range all {
			require.Equal(t, min(max(n, b.lowest), b.highest), get[int](c, "SELECT public.fn_cfg_int($1, -1)", b.key), b.key)
			if n < b.lowest || n > b.highest {
				require.Contains(t, invalid, b.key)
			} else {
				require.NotContains(t, invalid, b.key)
			}
		}
	}
	// With such a value stored, a lease still ends within its bound of a day, not after 31 years,
	// and a webhook request ends before its lease.
	c.exec("UPDATE public.dot_config SET value = '1000000' WHERE key IN ('queue.lease.duration_seconds', 'webhook.lease_seconds', 'webhook.timeout_seconds')")
	require.Equal(t, "86400 3600 600", get[string](c, `SELECT concat_ws(' ', public.fn_cfg_int('queue.lease.duration_seconds', 1),
		public.fn_cfg_int('webhook.lease_seconds', 1), public.fn_cfg_int('webhook.timeout_seconds', 1))`))
}
