package schema

// `migrate down` removes cron jobs before it drops the functions that they call: otherwise pg_cron
// would call missing functions every minute.

import (
	"context"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/qtop/qtop/pgclient/pgrow"
)

// cron holds the cron jobs of qtop in this database, as far as the migrator may see them.
type cron struct {
	ids    []int64
	names  []string
	hidden string // the logins that own jobs which the migrator cannot see
}

func cronJobs(ctx context.Context, conn pgx.Tx, set roleSet) (c cron, err error) {
	c.names = []string{} // not nil: in SQL nil is NULL, and <> ALL (NULL) is never true
	var there, listed bool
	if err = conn.QueryRow(ctx, "SELECT to_regclass('public.queue_cron_job') IS NOT NULL").Scan(&listed); err != nil || !listed {
		return c, err
	}
	listedNames, err := pgrow.Column[string](ctx, conn, "SELECT q.job_name::text FROM public.queue_cron_job q")
	if err != nil {
		return c, err
	}
	// pg_cron shows a login its own jobs alone
	if err = asLogin(ctx, conn, set, func() error {
		if err := conn.QueryRow(ctx, `SELECT EXISTS (SELECT 1 FROM pg_catalog.pg_extension WHERE extname = 'pg_cron')
			AND pg_catalog.has_schema_privilege(to_regnamespace('cron'), 'USAGE')`).Scan(&there); err != nil || !there {
			return err
		}
		// These include cron jobs that a login created without qtop.
		var id int64
		var name string
		return pgrow.Visit(ctx, conn, []any{&id, &name}, func() { c.ids, c.names = append(c.ids, id), append(c.names, name) },
			`SELECT j.jobid, j.jobname::text FROM cron.job j
			WHERE j.jobname::text = ANY ($1::text[]) AND j.database = current_database() ORDER BY j.jobname, j.jobid`, listedNames)
	}); err != nil {
		return c, err
	}
	err = conn.QueryRow(ctx, `SELECT COALESCE(string_agg(DISTINCT q.run_as, ', '), '') FROM public.queue_cron_job q
		WHERE q.run_as IS NOT NULL AND q.job_name <> ALL ($1)`, c.names).Scan(&c.hidden)
	return c, err
}

// unschedule removes the cron jobs in the transaction of Down, so that a failed Down keeps them.
func (c cron) unschedule(ctx context.Context, tx pgx.Tx) error {
	for _, id := range c.ids {
		if _, err := tx.Exec(ctx, "SELECT cron.unschedule($1::bigint)", id); err != nil {
			return err
		}
	}
	return nil
}

func (c cron) say(progress func(string), verb string) {
	if len(c.names) > 0 {
		progress(verb + " the cron jobs " + strings.Join(c.names, ", "))
	}
	if c.hidden != "" {
		progress("cron jobs that run as " + c.hidden + " are not visible to this login: where they still exist, remove them as that login or a superuser")
	}
}
