package inspect

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/qtop/qtop/pgclient"
	"github.com/qtop/qtop/pgclient/pgerror"
	"github.com/qtop/qtop/pgclient/pgpool"
	"github.com/qtop/qtop/pgclient/pgrow"
	"github.com/qtop/qtop/pgclient/schema"
)

// RoleReport says which rights the roles of a database give to whom.
type RoleReport struct {
	Roles         []schema.Role // the existing roles of qtop, the owner first
	DatabaseOwner string        // the login that runs migrations, unless a superuser does
	OpenExecutors []string      // executors as which every member of dot_executor may work; nil if this login may not read them
}

// Roles reads the roles of the database, their members, and the other databases in which the
// roles have rights.
func Roles(ctx context.Context, c *pgclient.Client) (r RoleReport, err error) {
	ctx, cancel := context.WithTimeout(ctx, pgpool.ReadTimeout)
	defer cancel()
	err = pgx.BeginTxFunc(ctx, c.Read(), pgx.TxOptions{AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		var err error
		if r.Roles, err = schema.ClusterRoles(ctx, tx); err != nil {
			return err
		}
		err = tx.QueryRow(ctx, "SELECT pg_get_userbyid(datdba) FROM pg_catalog.pg_database WHERE datname = current_database()").Scan(&r.DatabaseOwner)
		if err != nil {
			return err
		}
		var may bool
		if err = tx.QueryRow(ctx, "SELECT has_table_privilege(session_user, 'public.queue_heartbeat', 'SELECT')").Scan(&may); err != nil || !may {
			return err
		}
		all, err := schema.RealRoles(ctx, tx)
		if err != nil {
			return err
		}
		r.OpenExecutors, err = pgrow.Column[string](ctx, tx, `SELECT executor_id FROM public.queue_heartbeat WHERE NOT tick_worker AND deregistered_at IS NULL
			AND (owner_role IS NULL OR owner_role = $1::text) ORDER BY executor_id LIMIT 1000`, all[slices.Index(schema.Roles(), "dot_executor")])
		return err
	})
	return r, pgerror.Translate(err)
}
