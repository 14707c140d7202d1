package schema

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/qtop/qtop/pgclient/pgrow"
)

// dependentsSQL lists everything that depends on the function or view $1 of kind $2, each row with
// the object on which it depends: functions (through the row type of a view), views (through their
// rule) and triggers.
const dependentsSQL = `
WITH RECURSIVE edge (class, oid, on_class, on_oid) AS (
	SELECT 'pg_proc'::regclass::oid, p.oid, 0::oid, 0::oid FROM pg_proc p
	WHERE $2 = 'function' AND p.pronamespace = 'public'::regnamespace AND p.proname = $1 AND p.proowner = ($3::text)::regrole
	UNION ALL
	SELECT 'pg_class'::regclass, c.oid, 0, 0 FROM pg_class c WHERE $2 = 'view' AND c.relnamespace = 'public'::regnamespace AND c.relname = $1
	UNION
	SELECT CASE WHEN r.oid IS NULL THEN d.classid ELSE 'pg_class'::regclass END, COALESCE(r.ev_class, d.objid), e.class, e.oid
	FROM edge e CROSS JOIN LATERAL (
		SELECT d.classid, d.objid FROM pg_depend d WHERE d.refclassid = e.class AND d.refobjid = e.oid AND d.deptype = 'n'
		UNION ALL
		SELECT d.classid, d.objid FROM pg_class c JOIN pg_type t ON t.oid = c.reltype
		CROSS JOIN LATERAL unnest(ARRAY[t.oid, t.typarray]) AS row_type (oid)
		JOIN pg_depend d ON d.refclassid = 'pg_type'::regclass AND d.refobjid = row_type.oid AND d.deptype = 'n'
		WHERE e.class = 'pg_class'::regclass AND c.oid = e.oid
	) d LEFT JOIN pg_rewrite r ON d.classid = 'pg_rewrite'::regclass AND r.oid = d.objid
	WHERE (d.classid, COALESCE(r.ev_class, d.objid)) <> (e.class, e.oid)
)
SELECT format('%s %s', e.class, e.oid), CASE WHEN e.on_oid = 0 THEN 'top' ELSE format('%s %s', e.on_class, e.on_oid) END,
	CASE WHEN p.oid IS NOT NULL THEN 'function' WHEN c.relkind = 'v' THEN 'view' WHEN t.oid IS NOT NULL THEN 'trigger' ELSE 'object' END,
	CASE WHEN p.pronamespace = 'public'::regnamespace THEN p.proname::text
		WHEN c.relkind = 'v' AND c.relnamespace = 'public'::regnamespace THEN c.relname::text
		WHEN t.oid IS NOT NULL THEN format('%s on %s', t.tgname, (SELECT k.relname FROM pg_class k WHERE k.oid = t.tgrelid))
		ELSE pg_describe_object(e.class, e.oid, 0) END
FROM edge e LEFT JOIN pg_proc p ON e.class = 'pg_proc'::regclass AND p.oid = e.oid
LEFT JOIN pg_class c ON e.class = 'pg_class'::regclass AND c.oid = e.oid
LEFT JOIN pg_trigger t ON e.class = 'pg_trigger'::regclass AND t.oid = e.oid
WHERE COALESCE(t.tgparentid, 0) = 0`

// dependents returns the object and everything that depends on it, in the order in
// which they can be dropped.
func (in *installer) dependents(ctx context.Context, o object) ([]object, error) {

	objects, above := map[string]object{}, map[string][]string{}
	var id, on string
	var d object
	if err := pgrow.Visit(ctx, in.tx, []any{&id, &on, &d.kind, &d.name}, func() {
		objects[id] = d
		above[on] = append(above[on], id)
	}, dependentsSQL, o.name, string(o.kind), in.roleSet.owner()); err != nil {
		return nil, err
	}
	var out []object
	done := map[string]bool{}
	var visit func(id string)
	visit = func(id string) {
		if done[id] {
			return
		}
		done[id] = true
		slices.Sort(above[id])
		for _, a := range above[id] {
			visit(a)
		}
		if o, ok := objects[id]; ok {
			out = append(out, o)
		}
	}
	visit("top")
	return out, nil
}

// dropWithDependents drops an object that CREATE OR REPLACE cannot change, and its dependents, and
// returns them. It refuses dependents that are not qtop's. The caller installs those that this
// release declares again later; the others belong to older releases.
func (in *installer) dropWithDependents(ctx context.Context, o object) ([]object, error) {
	hits, err := in.dependents(ctx, o)
	if err != nil {
		return nil, err
	}
	var foreign []string
	for _, d := range hits {
		_, known := in.records[d.key()]
		if !known && !slices.ContainsFunc(in.release.objects, d.same) && !slices.ContainsFunc(in.release.dropped, d.same) {
			foreign = append(foreign, d.String())
		}
	}
	if len(foreign) > 0 {
		return nil, refuse(fmt.Sprintf("%s must be dropped, but objects that are not qtop's depend on it: %s", o, strings.Join(foreign, ", ")), in.doing,
			"nothing was changed; drop those objects, migrate, and create them again")
	}
	for _, d := range hits {
		if err := in.dropAll(ctx, d); err != nil {
			return nil, err
		}
	}
	return hits, nil
}

// dropAll drops an object if it exists. For a function it drops every overload that qtop owns.
func (in *installer) dropAll(ctx context.Context, o object) error {
	in.found = nil
	switch o.kind {
	case function:
		return exec(ctx, in.tx, fmt.Sprintf(`DO $do$ DECLARE f regprocedure; BEGIN
			FOR f IN SELECT p.oid FROM pg_proc p WHERE p.pronamespace = 'public'::regnamespace AND p.proname = '%s' AND p.proowner = '%s'::regrole LOOP
				EXECUTE format('DROP FUNCTION %%s', f); END LOOP; END $do$`, o.name, in.roleSet.owner()))
	case view:
		return exec(ctx, in.tx, "DROP VIEW IF EXISTS public."+o.name)
	case trigger:
		var there bool
		if err := in.tx.QueryRow(ctx, "SELECT to_regclass($1) IS NOT NULL", "public."+o.relation()).Scan(&there); err != nil || !there {
			return err
		}
		return exec(ctx, in.tx, o.drop())
	case rights, comment:
		err := pgx.BeginFunc(ctx, in.tx, func(tx pgx.Tx) error {
			sql, err := in.withArguments(ctx, o, o.drop())
			if err != nil {
				return err
			}
			return in.exec(ctx, tx, sql)
		})
		if errors.Is(err, pgx.ErrNoRows) { // the function was dropped, and its rights with it
			return nil
		}
		var pg *pgconn.PgError
		if errors.As(err, &pg) && strings.HasPrefix(pg.Code, "42") { // the object of the rights was dropped
			return nil
		}
		return err
	}
	return nil
}

// dropGone drops the objects that earlier releases installed and this one does not declare: those
// that the earlier releases recorded and, for releases that recorded none, those that release.txt
// names.
func (in *installer) dropGone(ctx context.Context) ([]object, error) {
	declares := map[key]bool{}
	for _, o := range in.release.objects {
		declares[o.key()] = true
	}
	found, err := in.catalogue(ctx, allKinds...)
	if err != nil {
		return nil, err
	}
	var gone []object
	for k := range in.records {
		if !declares[k] {
			gone = append(gone, object{kind: k.kind, name: k.name})
		}
	}
	for _, o := range in.release.dropped {
		if _, there := found[o.key()]; there && !slices.ContainsFunc(gone, o.same) {
			gone = append(gone, o)
		}
	}
	order := []kind{comment, rights, trigger, view, function}
	slices.SortFunc(gone, func(a, b object) int {
		if d := slices.Index(order, a.kind) - slices.Index(order, b.kind); d != 0 {
			return d
		}
		return strings.Compare(a.name, b.name)
	})
	var told []object
	for _, o := range gone {
		in.doing = "dropping " + o.String()
		if o.kind == view || o.kind == function { // only objects that are dropped too depend on it
			if _, err := in.dropWithDependents(ctx, o); err != nil {
				return nil, err
			}
		} else if err := in.dropAll(ctx, o); err != nil {
			return nil, err
		}
		if o.kind != rights && o.kind != comment {
			told = append(told, o)
		}
	}
	return told, nil
}
