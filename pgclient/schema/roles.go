package schema

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/qtop/qtop/pgclient/pgrow"
	"github.com/qtop/qtop/pgclient/queue"
)

// roleSet is the set of roles that a database uses. Roles belong to the whole cluster, so databases
// with the same set have the same members. Code, documents and all output use logical names
// (queue_viewer); a database with a prefix has separate roles for them (staging_queue_viewer). Only
// this type, and [expand] and fn_queue_role_name, which follow it, map logical names to roles.
type roleSet struct{ prefix string }

// named returns the role of the cluster for a logical name.
func (s roleSet) named(logical string) string { return s.prefix + logical }

func (s roleSet) owner() string { return s.named(owner) }

// assume is the statement with which a transaction acts as the owner.
func (s roleSet) assume() string { return "SET LOCAL ROLE " + pgx.Identifier{s.owner()}.Sanitize() }

// all returns the roles of the set, the owner first.
func (s roleSet) all() []string {
	out := []string{s.owner()}
	for _, name := range Roles() {
		out = append(out, s.named(name))
	}
	return out
}

// rolePrefix matches a valid prefix. A prefix of 40 characters and the longest role name fit into
// the 63 bytes of an identifier, and need no quotes.
var rolePrefix = regexp.MustCompile(`^[a-z][a-z0-9_]{0,39}$`)

func checkPrefix(prefix string) error {
	if prefix != "" && (!rolePrefix.MatchString(prefix) || strings.HasPrefix(prefix, "pg_")) {
		return queue.NewError(queue.KindUsage, fmt.Sprintf("%q is not a valid prefix of roles", prefix), "--role-prefix", "use up to 40 characters of a-z, digits and underscores, starting with a-z and not with pg_")
	}
	return nil
}

// RolePrefix returns the prefix of the database's roles; empty if it has none, or
// nothing is installed.
func RolePrefix(ctx context.Context, q querier) (string, error) {
	s, err := storedRoles(ctx, q)
	return s.prefix, err
}

// RealRoles returns the names in the cluster of the roles that [Roles] lists, in the same order.
func RealRoles(ctx context.Context, q querier) ([]string, error) {
	s, err := storedRoles(ctx, q)
	return s.all()[1:], err
}

// WholeSet returns the logical names of the owner and the roles that [Roles] lists, and their names
// in the cluster, in the same order.
func WholeSet(ctx context.Context, q querier) (names, roles []string, err error) {
	s, err := storedRoles(ctx, q)
	return append([]string{owner}, Roles()...), s.all(), err
}

// storedRoles reads the set of roles with which the database was installed. It refuses names that
// migrate up never records: the owner of the database can write them, and they become part of
// statements. The query only reads columns, because an operator or a cast could be a function of that
// owner.
func storedRoles(ctx context.Context, q querier) (s roleSet, err error) {
	there, err := bookExists(ctx, q, "public.qtop_schema_role")
	if err != nil || !there {
		return s, err
	}
	var name, role string
	made := true
	err = pgrow.Visit(ctx, q, []any{&name, &role}, func() {
		if name == owner {
			prefix, ends := strings.CutSuffix(role, owner)
			made = made && ends && checkPrefix(prefix) == nil
			s.prefix = prefix
		}
	}, "SELECT name, role FROM public.qtop_schema_role")
	if err == nil && !made {
		return roleSet{}, refuse("public.qtop_schema_role names roles that qtop never makes", "public.qtop_schema_role",
			"nothing was done with these names; find out who wrote them: only qtop migrate up writes this table")
	}
	return s, err
}

// Role is a role of qtop in the cluster.
type Role struct {
	Name       string   // logical name
	Role       string   // name in the cluster
	Attributes []string // attributes that a group role must not have: LOGIN, SUPERUSER, …
	Members    []string // direct members in the cluster
	MemberOf   []string // quoted for a statement; without pg_read_all_stats, which migrate up grants to the owner
	Databases  []string // other databases of the cluster in which it has rights or objects
	Hint       bool     // its comment names qtop; any login with CREATEROLE can write it

	here      bool // it has rights or objects in this database
	elsewhere bool // it has them in another database, in which the owner of the set owns tables and functions
}

// ClusterRoles returns the existing roles of the database's set, the owner first.
func ClusterRoles(ctx context.Context, q querier) ([]Role, error) {
	s, err := storedRoles(ctx, q)
	if err != nil {
		return nil, err
	}
	return s.read(ctx, q)
}

func (s roleSet) read(ctx context.Context, q querier) ([]Role, error) {
	return pgrow.Each(ctx, q, func(row pgx.CollectableRow) (r Role, err error) {
		err = row.Scan(&r.Role, &r.Attributes, &r.Members, &r.MemberOf, &r.Databases, &r.Hint, &r.here, &r.elsewhere)
		r.Name = strings.TrimPrefix(r.Role, s.prefix)
		return r, err
	}, `
WITH with_schema AS MATERIALIZED ( -- the other databases that have the schema
	SELECT o.dbid FROM pg_shdepend o JOIN pg_database d ON d.oid = o.dbid JOIN pg_roles w ON w.oid = o.refobjid
	WHERE o.refclassid = 'pg_authid'::regclass AND o.deptype = 'o' AND w.rolname::text = $2::text AND d.datname <> current_database()
	GROUP BY o.dbid HAVING bool_or(o.classid = 'pg_class'::regclass) AND bool_or(o.classid = 'pg_proc'::regclass))
SELECT r.rolname::text,
	array_remove(ARRAY[CASE WHEN r.rolcanlogin THEN 'LOGIN' END, CASE WHEN r.rolsuper THEN 'SUPERUSER' END, CASE WHEN r.rolcreaterole THEN 'CREATEROLE' END,
		CASE WHEN r.rolcreatedb THEN 'CREATEDB' END, CASE WHEN r.rolreplication THEN 'REPLICATION' END, CASE WHEN r.rolbypassrls THEN 'BYPASSRLS' END], NULL),
	ARRAY(SELECT DISTINCT m.rolname::text FROM pg_auth_members a JOIN pg_roles m ON m.oid = a.member WHERE a.roleid = r.oid ORDER BY 1),
	ARRAY(SELECT DISTINCT quote_ident(g.rolname) FROM pg_auth_members a JOIN pg_roles g ON g.oid = a.roleid WHERE a.member = r.oid AND (g.rolname <> 'pg_read_all_stats' OR r.rolname::text <> $2::text) ORDER BY 1),
	ARRAY(SELECT d.datname::text FROM pg_database d WHERE d.datname <> current_database() AND d.oid IN (
		SELECT x.dbid FROM pg_shdepend x WHERE x.refclassid = 'pg_authid'::regclass AND x.refobjid = r.oid) ORDER BY 1),
	COALESCE(shobj_description(r.oid, 'pg_authid') LIKE 'qtop: %', false),
	EXISTS (SELECT FROM pg_shdepend x JOIN pg_database d ON d.oid = x.dbid WHERE x.refclassid = 'pg_authid'::regclass AND x.refobjid = r.oid AND d.datname = current_database()),
	EXISTS (SELECT FROM pg_shdepend x WHERE x.refclassid = 'pg_authid'::regclass AND x.refobjid = r.oid AND x.dbid IN (SELECT w.dbid FROM with_schema w))
FROM pg_roles r WHERE r.rolname::text = ANY ($1::text[]) ORDER BY array_position($1::text[], r.rolname::text)`, s.all(), s.owner())
}

// otherMembers returns the roles that are members of the owner, directly or through other roles,
// except superusers and the current login.
func (s roleSet) otherMembers(ctx context.Context, q querier) ([]string, error) {
	return pgrow.Column[string](ctx, q, `SELECT m.rolname::text FROM pg_roles m, pg_roles o WHERE o.rolname::text = $1::text AND m.oid <> o.oid AND NOT m.rolsuper
		AND m.rolname <> session_user AND pg_has_role(m.oid, o.oid, 'MEMBER') ORDER BY 1`, s.owner())
}

// String describes the facts that an administrator must check before qtop uses the role.
func (r Role) String() string {
	var about []string
	for _, part := range []struct {
		what  string
		names []string
	}{{"members", r.Members}, {"is a member of", r.MemberOf}, {"used in other databases", r.Databases}} {
		if len(part.names) > 0 {
			about = append(about, part.what+" "+few(part.names))
		}
	}
	if r.Hint {
		about = append(about, "its comment names qtop")
	}
	if len(about) == 0 {
		about = []string{"no members"}
	}
	return r.Role + " (" + strings.Join(about, "; ") + ")"
}

// few joins the first ten names and adds the number of the others.
func few(names []string) string {
	if len(names) <= 10 {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:10], ", "), len(names)-10)
}

// Remedy is the statement that removes the attributes that a group role must not have.
func (r Role) Remedy() string {
	return "ALTER ROLE " + r.Role + " NO" + strings.Join(r.Attributes, " NO")
}

// How a role became part of the set of a database.
const (
	roleMade    = "made"    // by migrate up
	roleGranted = "granted" // an installed qtop, of this or another database of the cluster, used it
	roleAdopted = "adopted" // by --adopt-roles
)

// admitRoles decides which set of roles Up uses, and refuses roles that it must not
// use:
//
//  1. The stored prefix is used; another one is refused.
//  2. A role that may log in, or has attributes such as SUPERUSER, is refused, even if
//     qtop made it.
//  3. An existing role is accepted if this database recorded it, or used it before releases
//     recorded roles.
//  4. In a database without qtop, an existing role is accepted if an installed qtop
//     uses it: in another database of the cluster the owner of the set owns tables and
//     functions, and the role has rights or objects. A member of the owner could forge
//     this evidence, so no role except superusers and this login may be a member.
//  5. Any other role is refused without --adopt-roles.
func (in *installer) admitRoles(ctx context.Context, from int32) error {
	var err error
	if in.roleSet, err = storedRoles(ctx, in.tx); err != nil {
		return err
	}
	if err := checkPrefix(in.options.RolePrefix); err != nil {
		return err
	}
	switch {
	case from == 0:
		in.roleSet = roleSet{in.options.RolePrefix}
	case in.options.RolePrefix != "" && in.options.RolePrefix != in.roleSet.prefix:
		return refuse(fmt.Sprintf("the roles of this database have the prefix %q, not %q", in.roleSet.prefix, in.options.RolePrefix), "--role-prefix",
			"nothing was changed; leave --role-prefix out: the stored one is used")
	}
	roles, err := in.roleSet.read(ctx, in.tx)
	if err != nil {
		return err
	}
	if err := refuseAttributes(roles); err != nil {
		return err
	}
	members, err := in.roleSet.otherMembers(ctx, in.tx)
	if err != nil {
		return err
	}
	recorded, err := recordedRoles(ctx, in.tx)
	if err != nil {
		return err
	}
	in.roleOrigin = map[string]string{}
	var unknown []string
	for _, name := range append([]string{owner}, Roles()...) {
		at := slices.IndexFunc(roles, func(r Role) bool { return r.Name == name })
		switch {
		case at < 0:
			in.roleOrigin[name] = roleMade
		case recorded[name], from > 0 && len(recorded) == 0 && roles[at].here, from == 0 && roles[at].elsewhere && len(members) == 0:
			in.roleOrigin[name] = roleGranted
		case in.options.AdoptRoles:
			in.roleOrigin[name] = roleAdopted
			in.said = append(in.said, "adopted role "+roles[at].String())
		default:
			unknown = append(unknown, roles[at].String())
		}
	}
	if len(unknown) > 0 {
		return refuse("roles exist that this database's qtop did not make: "+strings.Join(unknown, ", "), "roles of the cluster",
			"nothing was changed; look at their members, then pass --adopt-roles to use them, or --role-prefix P for separate roles of this database")
	}
	if from == 0 && len(roles) > 0 && len(roles[0].Databases) > 0 {
		in.said = append(in.said, "roles are shared with database "+few(roles[0].Databases)+": their members may do here what they may do there; --role-prefix keeps sets apart")
	}
	return nil
}

// admitSchema refuses an owner of the database who may not let roles use the schema public, because that belongs
// to another role, as in databases from before PostgreSQL 15. No right to grant is needed where an earlier run
// has granted it to the role that owns qtop's objects, or where everybody may create.
func (in *installer) admitSchema(ctx context.Context) error {
	var may bool
	var who, schemaOwner, remedy string
	err := in.tx.QueryRow(ctx, `SELECT
			has_schema_privilege(n.oid, 'USAGE WITH GRANT OPTION') AND has_schema_privilege(n.oid, 'CREATE WITH GRANT OPTION')
				OR has_schema_privilege(n.oid, 'USAGE') AND EXISTS (
					SELECT FROM (SELECT rolname FROM pg_roles WHERE rolname::text ~ ($1::text || '$') UNION ALL SELECT 'public') r (name)
					WHERE has_schema_privilege(r.name, n.oid, 'USAGE') AND has_schema_privilege(r.name, n.oid, 'CREATE')),
			quote_ident(current_user), quote_ident(o.rolname),
			CASE o.rolname WHEN 'pg_database_owner' THEN quote_ident(current_user) ELSE 'pg_database_owner' END
		FROM pg_namespace n JOIN pg_roles o ON o.oid = n.nspowner JOIN pg_database d ON d.datname = current_database()
		WHERE n.nspname = 'public' AND pg_has_role(d.datdba, 'MEMBER')`, owner).Scan(&may, &who, &schemaOwner, &remedy)
	if errors.Is(err, pgx.ErrNoRows) || err == nil && may {
		return nil // without a schema public, or not as the owner of the database: a later step says what to do
	}
	if err != nil {
		return err
	}
	return queue.NewError(queue.KindPermission, fmt.Sprintf("the schema public belongs to %s, and %s may not grant rights on it", schemaOwner, who), "schema public",
		"nothing was changed; as a superuser run ALTER SCHEMA public OWNER TO "+remedy+" in this database; then run migrate up again")
}

// refuseAttributes refuses roles that have attributes which a group role must not have.
func refuseAttributes(roles []Role) error {
	var found, remedies []string
	for _, r := range roles {
		if len(r.Attributes) > 0 {
			found = append(found, fmt.Sprintf("%s has %s", r.String(), strings.Join(r.Attributes, ", ")))
			remedies = append(remedies, r.Remedy())
		}
	}
	if len(found) == 0 {
		return nil
	}
	return refuse("qtop's roles must be groups without LOGIN or other attributes: "+strings.Join(found, "; "), "roles of the cluster",
		"nothing was changed; run "+strings.Join(remedies, "; ")+"; or rename the role, or give this database separate roles with --role-prefix P")
}

// recordedRoles returns the logical names for which the database has recorded a role.
func recordedRoles(ctx context.Context, q querier) (map[string]bool, error) {
	out := map[string]bool{}
	there, err := bookExists(ctx, q, "public.qtop_schema_role")
	if err != nil || !there {
		return out, err
	}
	var name string
	return out, pgrow.Visit(ctx, q, []any{&name}, func() { out[name] = true }, "SELECT name FROM public.qtop_schema_role")
}

// recordRoles records which roles the database uses, and how they became part of it.
func (in *installer) recordRoles(ctx context.Context, _ int32) error {
	in.doing = "public.qtop_schema_role"
	var there bool
	if err := in.tx.QueryRow(ctx, "SELECT to_regclass('public.qtop_schema_role') IS NOT NULL").Scan(&there); err != nil || !there {
		return err // a release that did not record roles yet
	}
	for _, name := range append([]string{owner}, Roles()...) {
		if _, err := in.tx.Exec(ctx, `INSERT INTO public.qtop_schema_role (name, role, origin, recorded_by) VALUES ($1::text, $2::text, $3::text, session_user)
			ON CONFLICT (name) DO NOTHING`, name, in.roleSet.named(name), in.roleOrigin[name]); err != nil {
			return err
		}
	}
	return nil
}

// narrowViewers revokes the membership in pg_read_all_stats that earlier releases granted to
// viewers: with it viewers can read every statement of the cluster. Memberships belong to the whole
// cluster, and migrations of several databases may revoke them at the same time. So each is revoked
// separately, after the long transaction, and then checked again. If a membership cannot be
// revoked, narrowViewers reports that through progress.
func narrowViewers(ctx context.Context, conn *pgx.Conn, progress func(string)) error {
	set, err := storedRoles(ctx, conn)
	var failed error
	for range 3 {
		if err != nil {
			return err
		}
		rows, _ := conn.Query(ctx, `SELECT format('REVOKE pg_read_all_stats FROM %I', m.rolname) || COALESCE(' GRANTED BY ' || quote_ident(g.rolname), '')
			FROM pg_auth_members a JOIN pg_roles m ON m.oid = a.member LEFT JOIN pg_roles g ON g.oid = a.grantor
			WHERE a.roleid = 'pg_read_all_stats'::regrole AND m.rolname::text = $1::text`, set.named("queue_viewer"))
		var revokes []string
		if revokes, err = pgx.CollectRows(rows, pgx.RowTo[string]); len(revokes) == 0 {
			return err
		}
		for _, sql := range revokes {
			if _, failed = conn.PgConn().Exec(ctx, "SET LOCAL lock_timeout = '1500ms'; "+sql).ReadAll(); failed == nil {
				progress("viewers need pg_read_all_stats no longer: " + sql)
			}
		}
	}
	progress(fmt.Sprintf("members of %s can read the statements of every session of the cluster: they are still members of pg_read_all_stats (%v)", set.named("queue_viewer"), failed))
	return nil
}

// recordRolesSQL does the work of recordRoles in SQL, for an administrator who runs the SQL.
func recordRolesSQL() string {
	var rows []string
	for _, name := range append([]string{owner}, Roles()...) {
		rows = append(rows, fmt.Sprintf("('%s', :'%[1]s', '%s')", name, roleAdopted))
	}
	return "INSERT INTO public.qtop_schema_role (name, role, origin) VALUES\n  " + strings.Join(rows, ",\n  ") + "\n  ON CONFLICT (name) DO NOTHING;"
}

// rolesSQL creates the missing roles. Roles belong to the whole cluster and are never
// dropped: logins of other databases may be members.
const rolesSQL = `DO $do$
DECLARE
  v_role text;
BEGIN
  FOREACH v_role IN ARRAY ARRAY[:'queue_owner', :'queue_viewer', :'dot_executor', :'workflow_admin',
    :'dead_letter_operator', :'event_ingest_writer', :'router_worker', :'saga_orchestrator', :'webhook_worker',
    :'lease_reset_cleaner', :'subscription_admin']
  LOOP
    BEGIN
      IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = v_role) THEN
        EXECUTE pg_catalog.format('CREATE ROLE %I NOLOGIN', v_role);
        EXECUTE pg_catalog.format('COMMENT ON ROLE %I IS %L', v_role,
          pg_catalog.format('qtop: made by migrate up in database %s', pg_catalog.current_database()));
      END IF;
    EXCEPTION WHEN duplicate_object OR unique_violation THEN -- it was not there when the roles were looked at
      RAISE EXCEPTION 'role % was made by somebody else at this moment', v_role USING ERRCODE = '40001';
    END;
  END LOOP;
  -- what SET ROLE needs; a login that does not inherit the rights of its roles needs no more
  IF NOT pg_catalog.pg_has_role(current_user, :'queue_owner',
    CASE WHEN pg_catalog.current_setting('server_version_num')::int4 >= 160000 THEN 'SET' ELSE 'MEMBER' END) THEN
    EXECUTE pg_catalog.format('GRANT :"queue_owner" TO %I', current_user);
  END IF;
  -- Who looks at a held cursor wants to know which session holds it: functions of the owner say so. Only a role that
  -- owns pg_read_all_stats may hand it on; without it the panes say what they cannot see.
  IF NOT pg_catalog.pg_has_role(:'queue_owner', 'pg_read_all_stats', 'MEMBER') THEN
    BEGIN
      GRANT pg_read_all_stats TO :"queue_owner";
    EXCEPTION WHEN insufficient_privilege THEN
      RAISE NOTICE 'pg_read_all_stats not granted: held cursors will show without their session';
    END;
  END IF;
END
$do$;
GRANT USAGE, CREATE ON SCHEMA public TO :"queue_owner";
GRANT USAGE ON SCHEMA public TO :"queue_viewer", :"dot_executor", :"workflow_admin", :"dead_letter_operator",
  :"event_ingest_writer", :"router_worker", :"saga_orchestrator", :"webhook_worker", :"lease_reset_cleaner",
  :"subscription_admin";`
