// What must not stop, lose or finish wrongly: operations beside closed circuits, flags that are off,
// items that were recalled, and a clock that went back.

package schema_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// halfOpen makes the circuit of a subscription half open: one probe decides.
func (h *hooks) halfOpen(sub int64) {
	h.t.Helper()
	require.NoError(h.t, h.asOwner("INSERT INTO public.webhook_endpoint_suspensions (subscription_id, reason, until, by) VALUES ($1, 'circuit', now(), 'webhook_worker')", sub))
	require.NoError(h.t, h.asOwner("UPDATE public.webhook_endpoint_state SET consecutive_failures = 5 WHERE subscription_id = $1", sub))
}

// Work of a paused operation is not sent, so it keeps neither live deliveries nor other operations
// from probing a half-open circuit.
func TestBulkPausedLeavesTheProbeToOthers(t *testing.T) {
	h := newHooks(t)
	sub, deadLetters := h.die("e", 10)
	a := h.started(deadLetters[:7], 1, 0, 7)
	require.Equal(t, "7 0 0", a.tick(1))
	require.Equal(t, 5, num(h.step(), "jobs_created"), "two of its sagas have no job yet")
	h.call("public.fn_queue_bulk_pause($1::bigint, 'ann')", a.id)
	closes := func(what string) {
		t.Helper()
		require.Equal(t, 1, num(h.step(), "jobs_created"), what)
		probe := h.claim(10)
		require.Len(t, probe, 1, what)
		h.finish("", probe...)
		require.Zero(t, one[int](h, "SELECT count(*) FROM public.webhook_endpoint_suspensions"), what)
		h.step()
	}
	h.halfOpen(sub)
	h.emit("e", 1)
	closes("a live delivery")
	h.halfOpen(sub)
	b := h.started(deadLetters[7:], 1000, 0, 0)
	require.Equal(t, "1 0 0", b.tick(1), "a probe of the other operation")
	closes("the other operation")
}
