// Events after a restore: of a dump into another cluster and back, and of rows alone into a database
// that has the schema already.

package schema_test

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/pgsession"
	"github.com/qtop/qtop/pgclient/pgtest"
)

func needsDump(t *testing.T) {
	t.Helper()
	pgtest.NotHostile(t, "the dump would contain the doubles")
	if _, err := exec.LookPath("pg_dump"); err != nil {
		t.Skip("NOT CHECKED: there is no pg_dump (Debian: postgresql-client-15)")
	}
}

// dsn returns how the programs of PostgreSQL connect to the database.
func (c *core) dsn() string {
	cfg := c.root.Config().ConnConfig
	return fmt.Sprintf("host=%s port=%d user=%s dbname=%s", cfg.Host, cfg.Port, cfg.User, cfg.Database)
}

// beside makes another database in the server of this one, from a template.
func (c *core) beside(t *testing.T, name, template string) *core {
	t.Helper()
	cfg, err := pgsession.PoolConfig(fmt.Sprintf("host=%s port=%d user=%s dbname=%s", c.root.Config().ConnConfig.Host, c.root.Config().ConnConfig.Port, c.root.Config().ConnConfig.User, name))
	require.NoError(t, err)
	c.root.Reset()
	c.exec("CREATE DATABASE " + name + " TEMPLATE " + template)
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return &core{t: t, root: pool}
}

// dump returns a file with a dump of the database.
func (c *core) dump() string {
	c.t.Helper()
	file := filepath.Join(c.t.TempDir(), "dump")
	out, err := exec.CommandContext(c.t.Context(), "pg_dump", "-Fc", "-f", file, c.dsn()).CombinedOutput()
	require.NoError(c.t, err, "%s", out)
	return file
}

// restore runs pg_restore. With --exit-on-error it must succeed; otherwise it goes on after errors.
func (c *core) restore(file string, args ...string) {
	c.t.Helper()
	out, err := exec.CommandContext(c.t.Context(), "pg_restore", append(args, "-d", c.dsn(), file)...).CombinedOutput()
	if len(args) == 1 && args[0] == "--exit-on-error" {
		require.NoError(c.t, err, "%s", out)
	}
}

// adopt makes the database independent, if it counts as a copy.
func (c *core) adopt() {
	c.t.Helper()
	if get[string](c, cloneOf) != "" {
		require.NotContains(c.t, call(c.t, c.root, "public.fn_queue_adopt('keep'::text, current_database()::text, 'ann'::text, 'test'::text, false)"), "refused")
	}
}

// publish writes one event into each table of events.
func (c *core) publish(n int) { c.t.Helper(); c.exec(fmt.Sprintf(writeEvents, n)) }

// routedAll runs the routers until nothing waits, and requires that each event in the database was
// routed once, to the subscriptions that are older, and is counted in the share of events without a subscription.
func (c *core) routedAll() {
	c.t.Helper()
	eventually(c.t, "nothing waits", func() bool {
		c.exec(fmt.Sprintf(runRouters, 2))
		return get[string](c, unrouted) == "0 0" && get[bool](c, `SELECT o.restored_after_id IS NULL AND NOT EXISTS (
			SELECT FROM public.iu_route_worker_cursor WHERE restored_after IS NOT NULL) FROM public.router_offsets o`)
	})
	require.Equal(c.t, get[string](c, `SELECT string_agg(e.id::text, ' ' ORDER BY e.id) FROM public.events e
		JOIN public.subscriptions s ON s.created_at <= e.created_at`),
		get[string](c, "SELECT COALESCE(string_agg(event_id::text, ' ' ORDER BY event_id), '') FROM public.webhook_delivery_sagas"))
	require.Equal(c.t, get[string](c, "SELECT COALESCE(string_agg(event_subject_ref, ' ' ORDER BY event_subject_ref), '') FROM public.event_outbox WHERE event_domain = 'iu'"),
		get[string](c, `SELECT COALESCE(string_agg(e.event_subject_ref, ' ' ORDER BY e.event_subject_ref), '') FROM public.iu_route_attempt a
			JOIN public.event_outbox e ON e.id = a.event_id WHERE a.recipient_ref = 'user:ann'`))
	for range 2 { // before and after they are counted
		require.Equal(c.t, get[int](c, "SELECT count(*) FROM public.event_outbox WHERE event_domain = 'iu'"),
			get[int](c, "SELECT COALESCE(sum(events), 0)::int FROM public.fn_event_broadcast(NULL) WHERE event_domain = 'iu'"))
		c.exec("SELECT public.fn_event_classes_roll()")
	}
}

// used is a database whose transaction ids are far above those of a new server, with one routed event
// of each kind and one that waits.
func used(t *testing.T) *core {
	needsDump(t)
	c := newRoutes(t)
	c.exec("INSERT INTO public.subscriptions (event_type, callback_url, active, verified) VALUES ('order', 'http://127.0.0.1:1/', true, true)")
	(&jobs{core: c}).burn(20_000)
	c.publish(1)
	c.routedAll()
	c.publish(2)
	return c
}

// A dump goes into another cluster, is used there, and returns. The servers of tests have one
// system identifier, so that each of the two restores is into the cluster that the rows name.
func TestRoutingOfADumpThatReturns(t *testing.T) {
	old := used(t)
	away := newOwn(t, nil).beside(t, "away", "template0")
	away.restore(old.dump(), "--exit-on-error")
	require.Equal(t, "1 1", get[string](away, unrouted), "what waits in a copy is counted")
	away.publish(3)
	require.Equal(t, "2 2", get[string](away, unrouted), "before it is adopted, too")
	away.adopt()
	require.Equal(t, "2 2", get[string](away, unrouted))
	away.routedAll()
	for n := 4; n < 8; n++ {
		away.publish(n)
		away.routedAll()
	}
	away.publish(8)

	back := &core{t: t, db: pgtest.Empty(t)}
	back.root = back.db.Pool(t, "")
	back.restore(away.dump(), "--exit-on-error")
	back.publish(9)
	require.Equal(t, "2 2", get[string](back, unrouted))
	back.adopt()
	back.publish(10)
	require.Equal(t, "3 3", get[string](back, unrouted))
	back.routedAll()
	back.publish(11)
	require.Equal(t, "1 1", get[string](back, unrouted))
	back.routedAll()
}

// Rows alone are restored into a database of another cluster, in which routers ran or did not, with
// and without its triggers, before and after its own transaction ids have passed those of the rows.
func TestRoutingOfRestoredRows(t *testing.T) {
	old := used(t)
	dump := old.dump()
	server := newOwn(t, nil)
	high := newOwn(t, nil)
	(&jobs{core: high}).burn(60_000)
	for _, into := range []*core{server, high} {
		for i, how := range []struct {
			ran     bool
			restore []string
		}{
			{false, []string{"--data-only"}},
			{false, []string{"--data-only", "--disable-triggers"}},
			{true, []string{"--data-only"}},
			{true, []string{"--data-only", "--disable-triggers"}},
		} {
			t.Run(fmt.Sprintf("high %t, ran %t, %v", into == high, how.ran, how.restore), func(t *testing.T) {
				c := into.beside(t, fmt.Sprintf("rows%d", i), "queue")
				c.exec(`UPDATE public.queue_identity SET (database_oid, system_identifier) =
					(SELECT d.oid, s.system_identifier FROM pg_database d, pg_control_system() s WHERE d.datname = current_database())`)
				if how.ran {
					c.exec(fmt.Sprintf(runRouters, 2))
					c.exec(fmt.Sprintf(runRouters, 2))
				}
				c.restore(dump, how.restore...)
				c.exec("DELETE FROM public.event_class_count") // of events that pg_restore with triggers does not restore
				require.Equal(t, 2, get[int](c, "SELECT count(*) FROM public.events"))
				c.exec("INSERT INTO public.event_type_registry VALUES ('iu', 'made', 's', 'immediate') ON CONFLICT DO NOTHING")
				c.exec("INSERT INTO public.event_subscription (recipient_ref, event_domain) VALUES ('user:ann', 'iu') ON CONFLICT DO NOTHING")
				// with its triggers, pg_restore restores neither
				c.exec(`INSERT INTO public.subscriptions (event_type, callback_url, active, verified)
					SELECT 'order', 'http://127.0.0.1:1/', true, true WHERE NOT EXISTS (SELECT FROM public.subscriptions)`)
				c.publish(3)
				c.routedAll()
				c.publish(4)
				require.Equal(t, "1 1", get[string](c, unrouted))
				c.routedAll()
				require.Zero(t, get[int](c, "SELECT count(*) FROM public.fn_event_stamps_off()"))
			})
		}
	}
}

// After a restore, a run reads on past events that are routed: new ones do not wait for one run per
// batch of the past.
func TestRoutingReadsOnPastRoutedEvents(t *testing.T) {
	c := newRouting(t, 1).core
	c.exec("DO $$ BEGIN FOR i IN 1..300 LOOP " + `INSERT INTO public.events (event_type, payload) VALUES ('order', '1');
		PERFORM public.fn_iu_emit_event('iu', 'made', 's', 'immediate', 'info', NULL, '1');` + " END LOOP; END $$")
	eventually(t, "routed", func() bool {
		c.exec(fmt.Sprintf(runRouters, 1000))
		return get[string](c, unrouted) == "0 0"
	})
	for _, loaded := range []bool{false, true} {
		c.exec("SELECT public.fn_routing_restart($1)", loaded)
		c.publish(2)
		for range 3 {
			c.exec(fmt.Sprintf(runRouters, 5))
		}
		require.Equal(t, "0 0", get[string](c, unrouted))
	}
	require.Equal(t, "302 302", get[string](c, "SELECT (SELECT count(*) FROM public.webhook_delivery_sagas) || ' ' || (SELECT count(*) FROM public.iu_route_attempt)"))
}
