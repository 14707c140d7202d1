package schema_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// An event that the router could not turn into a saga for one of its recipients is kept, however old
// it is, until this recipient has it.
func TestRetentionKeepsWhatTheRouterFailedOn(t *testing.T) {
	h := newHooks(t)
	h.subscribe("order")
	failing := h.subscribe("order")
	h.exec(`CREATE FUNCTION public.poison() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no such luck'; END $$`)
	h.exec(fmt.Sprintf(`CREATE TRIGGER poison BEFORE INSERT ON public.webhook_delivery_sagas FOR EACH ROW WHEN (NEW.subscription_id = %d) EXECUTE FUNCTION public.poison()`, failing))
	h.flag("retention.webhooks_days", "1")
	h.emit("order", 1)
	h.step()
	h.finish("", h.claim(10)...)
	h.step()
	h.backdate("25 hours")
	require.Equal(t, 1, one[int](h, "SELECT count(*) FROM public.queue_quarantine WHERE step = 'webhook_route'"))
	require.Zero(t, h.retain(), "its pair is tried again later")
	require.NoError(t, h.asOwner("WITH q AS (DELETE FROM public.queue_quarantine RETURNING step, target) INSERT INTO public.queue_step_pending (step, targets, chunk) SELECT step, ARRAY[target], 1 FROM q"))
	got, err := tryCall(h.root, "public.fn_queue_retention_sweep()")
	require.NoError(t, err)
	require.Zero(t, num(got, "webhooks"), "its pair is pending")
	h.exec("DROP TRIGGER poison ON public.webhook_delivery_sagas")
	h.step()
	leases := h.claim(10)
	require.Len(t, leases, 1)
	require.Equal(t, failing, leases[0].Subscribed)
	h.finish("", leases...)
	h.step()
	h.backdate("25 hours")
	require.Equal(t, 1, h.retain())
}
