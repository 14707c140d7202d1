package schema

import (
	"context"
	"errors"
	"fmt"
	"regexp"

	"github.com/jackc/pgx/v5"
)

// Installed reports whether any release is installed. It reads only tables that bookExists accepts,
// and returns false on errors.
func Installed(ctx context.Context, conn *pgx.Conn) bool {
	v, err := version(ctx, conn)
	return err == nil && v > 0
}

var tableNames = regexp.MustCompile(`(?i)CREATE TABLE (?:IF NOT EXISTS )?public\.(\w+)`)

// ForeignName returns a function or relation of schema public with a name of this release and an
// owner who could not have installed qtop, if the installed release has no object of that name;
// empty if there is no such object. A call by that name would run the code of that owner.
func ForeignName(ctx context.Context, conn *pgx.Conn) (string, error) {
	var functions, relations []string
	for _, o := range Current().objects {
		if o.kind == function {
			functions = append(functions, o.name)
		}
		if o.kind == view {
			relations = append(relations, o.name)
		}
	}
	for _, m := range Current().migrations {
		for _, t := range tableNames.FindAllStringSubmatch(m.up, -1) {
			relations = append(relations, t[1])
		}
	}
	var what, who string
	err := conn.QueryRow(ctx, `
		WITH named (kind, name, owner) AS (
			SELECT 'function', p.proname::text, p.proowner FROM pg_catalog.pg_proc p
			WHERE p.pronamespace = 'public'::regnamespace AND p.proname = ANY ($1::text[])
			UNION ALL
			SELECT 'relation', c.relname::text, c.relowner FROM pg_catalog.pg_class c
			WHERE c.relnamespace = 'public'::regnamespace AND c.relname = ANY ($2::text[])
		), judged AS (
			SELECT n.kind, n.name, o.rolname::text AS who, o.rolsuper
				OR NOT o.rolcanlogin AND o.rolname::text ~ ('^[a-z0-9_]*' || $3::text || '$') AS ours
			FROM named n JOIN pg_catalog.pg_roles o ON o.oid = n.owner
		)
		SELECT j.kind || ' public.' || j.name, j.who FROM judged j
		WHERE NOT j.ours AND NOT EXISTS (SELECT FROM judged x WHERE x.kind = j.kind AND x.name = j.name AND x.ours)
		ORDER BY 1, 2 LIMIT 1`, functions, relations, owner).Scan(&what, &who)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", nil
	}
	return fmt.Sprintf("%s belongs to %s", what, who), err
}
