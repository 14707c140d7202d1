// No login can record that cron jobs are installed unless they are.

package schema_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
)

// claimedAlone requires that a workflow_admin cannot record that cron jobs were installed, in any
// way except through the two functions that install and remove them.
func claimedAlone(t *testing.T, c *core, admin *pgxpool.Pool) {
	t.Helper()
	const claim, install = `public.fn_queue_scheduler_claim(true, 'nobody_at_all', 'boss', 'x', '[{"id":"a"}]', 'done')`, "public.fn_queue_scheduler_install(text,text,boolean)"
	c.exec(fmt.Sprintf(`CREATE SCHEMA "%[1]s "; GRANT USAGE ON SCHEMA "%[1]s " TO PUBLIC;
		CREATE FUNCTION "%[1]s ".f() RETURNS bigint LANGUAGE plpgsql AS $$ BEGIN RETURN %[2]s; END $$`, install, claim))
	c.exec(fmt.Sprintf(`CREATE SCHEMA like_ours; GRANT USAGE ON SCHEMA like_ours TO PUBLIC;
		CREATE FUNCTION like_ours.fn_queue_scheduler_install(text, text, boolean) RETURNS bigint LANGUAGE plpgsql SET search_path = like_ours AS $$ BEGIN RETURN %s; END $$`, claim))
	for _, sql := range []string{
		"SELECT " + claim,
		"SELECT " + strings.Replace(claim, "true", "NULL", 1),
		"DO $$ BEGIN PERFORM " + claim + "; END $$",
		"DO $$ BEGIN EXECUTE $q$SELECT /*\nPL/pgSQL function " + install + " line 1 at assignment\n*/ " + claim + "$q$; END $$",
		"DO $$ BEGIN EXECUTE $q$/* PL/pgSQL function " + install + " line 1 at assignment */ SELECT " + claim + "$q$; END $$",
		"SELECT like_ours.fn_queue_scheduler_install('', '', true)",
		`SELECT "` + install + ` ".f()`,
	} {
		fails(t, admin, "42501", sql)
		tx := c.begin(admin)
		_, err := tx.Exec(t.Context(), "SET LOCAL quote_all_identifiers = on")
		require.NoError(t, err)
		_, err = tx.Exec(t.Context(), sql)
		require.ErrorContains(t, err, "only records what", sql)
		require.NoError(t, tx.Rollback(t.Context()))
	}
	require.Zero(t, get[int](c, "SELECT count(run_as) FROM public.queue_cron_job"))
	require.Zero(t, get[int](c, "SELECT count(*) FROM public.queue_operator_action WHERE actor = 'boss'"))
	c.exec(fmt.Sprintf(`DROP SCHEMA "%s ", like_ours CASCADE`, install))
}

// quoting returns a pool of the same login with quote_all_identifiers on, which also changes how
// call stacks show names.
func quoting(t *testing.T, c *core, login *pgxpool.Pool) *pgxpool.Pool {
	t.Helper()
	cfg := login.Config()
	cfg.ConnConfig.RuntimeParams["quote_all_identifiers"] = "on"
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	require.NoError(t, err)
	c.t.Cleanup(pool.Close)
	return pool
}
