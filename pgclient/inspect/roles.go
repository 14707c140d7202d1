package inspect

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/qtop/qtop/pgclient"
	"github.com/qtop/qtop/pgclient/pgerror"
	"github.com/qtop/qtop/pgclient/pgpool"
	"github.com/qtop/qtop/pgclient/pgrow"
	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/pgclient/schema"
)

// RoleReport says which rights the roles of a database give to whom.
type RoleReport struct {
	Roles         []schema.Role // the existing roles of qtop, the owner first
	DatabaseOwner string        // the login that runs migrations, unless a superuser does
	OpenExecutors []string      // executors as which every member of dot_executor may work; nil if this login may not read them
}

// RolePrefix returns the prefix of the database's roles; empty if it has none, or it cannot be read.
func RolePrefix(ctx context.Context, c *pgclient.Client) string {
	ctx, cancel := context.WithTimeout(ctx, pgpool.ReadTimeout)
	defer cancel()
	prefix, _ := schema.RolePrefix(ctx, c.Read())
	return prefix
}

// LackedRole is a role of qtop whose rights this login has not.
type LackedRole struct {
	Name   string // logical name
	Role   string // name in the cluster, quoted for a statement
	Member bool   // the login, or the role with whose rights it works (Session.InForce), is a member of the role, and does not inherit its rights
	Own    bool   // the login itself has its rights, but works with those of another role
}

// LackedRoles returns those of the roles, given by their logical names, whose rights this login has
// not. owner is true, and none is lacked, if it has the rights of the owner of the schema, as the
// login that ran migrate up and superusers have.
func LackedRoles(ctx context.Context, c *pgclient.Client, roles []string) (lacks []LackedRole, owner bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, pgpool.ReadTimeout)
	defer cancel()
	names, set, err := schema.WholeSet(ctx, c.Read()) // the owner is the first
	if err != nil {
		return nil, false, pgerror.Translate(err)
	}
	asked := append(names[:1:1], roles...)
	found := make([]string, len(asked))
	for i, name := range asked {
		found[i] = set[slices.Index(names, name)]
	}
	lacks, err = read[LackedRole](ctx, c, `SELECT x.name, pg_catalog.quote_ident(x.role), COALESCE(pg_has_role(current_user, to_regrole(quote_ident(x.role))::oid, 'MEMBER'), false),
		COALESCE(pg_has_role(session_user, to_regrole(quote_ident(x.role))::oid, 'USAGE'), false)
		FROM unnest($1::text[], $2::text[]) WITH ORDINALITY x (name, role, n)
		WHERE NOT COALESCE(pg_has_role(current_user, to_regrole(quote_ident(x.role))::oid, 'USAGE'), false) ORDER BY x.n`, asked, found)
	if err != nil {
		return nil, false, err
	}
	if len(lacks) == 0 || lacks[0].Name != names[0] {
		return nil, true, nil
	}
	return lacks[1:], false, nil
}

// ThisLogin returns the login of this session, quoted for a statement.
func ThisLogin(ctx context.Context, c *pgclient.Client) (queue.Text, error) {
	all, err := read[struct{ Quoted queue.Text }](ctx, c, "SELECT quote_ident(session_user)")
	if err != nil || len(all) == 0 {
		return queue.Text{}, err
	}
	return all[0].Quoted, nil
}

// ExecutorOwner is the role whose members may work as an executor.
type ExecutorOwner struct {
	Role    string // quoted for a statement; "" = every host may, there is no such executor, or this login may not read it
	Foreign bool   // this login is no member of it
}

// OwnerOf reads the owner role of an executor.
func OwnerOf(ctx context.Context, c *pgclient.Client, executor string) (ExecutorOwner, error) {
	all, err := read[ExecutorOwner](ctx, c, `SELECT quote_ident(h.owner_role), NOT COALESCE(pg_has_role(session_user, to_regrole(quote_ident(h.owner_role))::oid, 'MEMBER'), false)
		FROM public.queue_heartbeat h WHERE h.executor_id = $1::text AND h.deregistered_at IS NULL AND h.owner_role IS NOT NULL`, executor)
	if err != nil || len(all) == 0 {
		if queue.KindOf(err) == queue.KindPermission {
			err = nil
		}
		return ExecutorOwner{}, err
	}
	return all[0], nil
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
		if err = tx.QueryRow(ctx, "SELECT has_table_privilege('public.queue_heartbeat', 'SELECT')").Scan(&may); err != nil || !may {
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
