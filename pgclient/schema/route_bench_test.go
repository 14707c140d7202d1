// The time that routing takes per event.

package schema_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/pgtest"
)

// BenchmarkRoute routes 1,000 events of each table in one run of each router; the
// figure is per event.
func BenchmarkRoute(b *testing.B) {
	for _, k := range []struct{ name, write, route string }{
		{"webhook", "INSERT INTO public.events (event_type, payload) SELECT 'order', '{}' FROM generate_series(1, 1000)", "SELECT public.fn_webhook_router_run(1000)"},
		{"outbox", "SELECT count(public.fn_iu_emit_event('iu', 'made', 's', 'immediate', 'info', NULL, g::text)) FROM generate_series(1, 1000) g", "SELECT public.fn_iu_route_worker_run()"},
		{"idle", "SELECT 1", "SELECT public.fn_webhook_router_run(1000), public.fn_iu_route_worker_run()"},
	} {
		b.Run(k.name, func(b *testing.B) {
			conn := pgtest.New(b).Conn(b, "")
			ctx := context.Background()
			run := func(sql string) {
				_, err := conn.Exec(ctx, sql)
				require.NoError(b, err)
			}
			run("INSERT INTO public.event_type_registry VALUES ('iu', 'made', 's', 'immediate')")
			run("INSERT INTO public.subscriptions (event_type, callback_url, active, verified) VALUES ('order', 'http://127.0.0.1:1/', true, true)")
			run(k.route)
			b.ResetTimer()
			for range b.N {
				b.StopTimer()
				run(k.write)
				b.StartTimer()
				run(k.route)
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/1000, "µs/event")
		})
	}
}
