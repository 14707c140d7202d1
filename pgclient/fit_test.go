package pgclient_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient"
	"github.com/qtop/qtop/pgclient/inspect"
	"github.com/qtop/qtop/pgclient/pgtest"
	"github.com/qtop/qtop/pgclient/queue"
)

// Where the schema is missing or older, another login may have made an object under a name that the
// schema lacks. Neither reading nor acting calls such an object.
func TestStrangersAreNotCalled(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	adopt := queue.Request{Action: queue.ActAdopt, Args: map[string]string{"waiting": "keep"}, Reason: "r"}
	for name, db := range map[string]*pgtest.DB{"nothing is installed": pgtest.Empty(t), "an older release": pgtest.Released(t)} {
		t.Run(name, func(t *testing.T) {
			planter := pgtest.Login(t, db)
			admin := db.Conn(t, "")
			for _, sql := range []string{"GRANT CREATE ON SCHEMA public TO " + pgx.Identifier{planter}.Sanitize(), "CREATE SEQUENCE public.called; GRANT ALL ON public.called TO PUBLIC"} {
				_, err := admin.Exec(ctx, sql)
				require.NoError(t, err)
			}
			c := open(t, pgclient.Options{DSN: db.DSN(""), Actor: "ann"})
			s, err := c.Snapshot(ctx, 0)
			require.NoError(t, err)
			require.Equal(t, name == "nothing is installed", len(s.Missing) > 0, "an older schema is shown")

			evil := db.Conn(t, planter)
			_, err = evil.Exec(ctx, `
				CREATE FUNCTION public.fn_queue_adopt(p_waiting text, p_database text, p_actor text, p_reason text, p_dry_run boolean DEFAULT false)
				RETURNS jsonb LANGUAGE sql AS $$ SELECT jsonb_build_object('called', nextval('public.called')) $$;
				CREATE VIEW public.v_signing_fault AS SELECT nextval('public.called')::text AS host_id, 1::bigint AS subscription_id, '' AS what, '' AS remedy`)
			require.NoError(t, err)
			if name == "nothing is installed" {
				_, err = evil.Exec(ctx, `CREATE FUNCTION public.fn_queue_picture(p double precision) RETURNS TABLE (taken_at timestamptz, took_ms float8, shared boolean, body jsonb)
					LANGUAGE sql AS $$ SELECT now(), nextval('public.called')::float8, false, '{}'::jsonb $$;
					CREATE FUNCTION public.fn_queue_picture(p interval) RETURNS TABLE (taken_at timestamptz, took_ms float8, shared boolean, body jsonb)
					LANGUAGE sql AS $$ SELECT now(), nextval('public.called')::float8, false, '{}'::jsonb $$`)
				require.NoError(t, err)
			}
			c = open(t, pgclient.Options{DSN: db.DSN(""), Actor: "ann"})
			s, err = c.Snapshot(ctx, 0)
			require.NoError(t, err)
			require.Contains(t, s.Missing["all"].String(), "run qtop migrate up")
			_, err = inspect.SigningFaults(ctx, c.Client)
			require.ErrorContains(t, err, "run qtop migrate up")
			_, err = c.Plan(ctx, adopt)
			require.ErrorContains(t, err, "run qtop migrate up")
			session, err := c.Session(ctx)
			require.NoError(t, err)
			require.NotNil(t, session.Misfit)
			var called bool
			require.NoError(t, admin.QueryRow(ctx, "SELECT is_called FROM public.called").Scan(&called))
			require.False(t, called)
		})
	}
}
