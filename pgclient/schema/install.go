package schema

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/qtop/qtop/pgclient/pgerror"
	"github.com/qtop/qtop/pgclient/pgrow"
)

// code installs what differs of the functions, views, triggers, rights and comments of this release
// (the files in code/) and the rows of its seeds, and records hashes of the resulting objects.
func (in *installer) code(ctx context.Context, _ int32) error {
	in.doing = "code"
	changed := map[kind][]string{}
	for _, of := range [][]kind{{function, view}, {trigger}, {rights, comment}} {
		found, err := in.catalogue(ctx, of...)
		if err != nil {
			return err
		}
		var todo batch
		for _, o := range in.release.objects {
			if !slices.Contains(of, o.kind) {
				continue
			}
			did, err := in.installDifferent(ctx, o, found, &todo)
			if err != nil {
				return err
			}
			if did {
				changed[o.kind] = append(changed[o.kind], o.name)
			}
		}
		if err := in.flush(ctx, &todo); err != nil {
			return err
		}
	}
	gone, err := in.dropGone(ctx)
	if err != nil {
		return err
	}
	seeds := shortHash(in.release.seeds)
	if err := in.seed(ctx, in.before.Seeds != seeds); err != nil {
		return err
	}
	if len(changed)+len(gone) == 0 && in.before.Hash == in.release.Hash && in.before.Code == in.release.Code && in.comparable && len(in.said) == 0 {
		return nil
	}
	in.report(changed, gone)
	return in.record(ctx, seeds)
}

// seed runs the seeds if they have changed or rows of theirs are missing.
func (in *installer) seed(ctx context.Context, changed bool) error {
	in.doing = "seeds.sql"
	if !changed {
		missing, err := in.release.missingRows(ctx, in.tx)
		if err != nil || len(missing) == 0 {
			return err
		}
		for _, m := range missing {
			in.said = append(in.said, "row missing, put back: "+m.String())
		}
	}
	in.found = nil
	return in.exec(ctx, in.tx, in.release.seeds)
}

// report adds the progress line that lists the changed functions, views and triggers: by name if
// there are few, otherwise by number.
func (in *installer) report(changed map[kind][]string, gone []object) {
	line := fmt.Sprintf("code %d (%s):", in.release.Code, in.release.Hash)
	for _, k := range allKinds {
		names := changed[k]
		switch {
		case len(names) == 0:
		case len(names) <= 5 && k != rights && k != comment:
			line += fmt.Sprintf(" %s %s;", k, strings.Join(names, ", "))
		case k == rights:
			line += fmt.Sprintf(" rights on %d;", len(names))
		default:
			line += fmt.Sprintf(" %d %ss;", len(names), k)
		}
	}
	for _, o := range gone {
		line += " without " + o.String() + ";"
	}
	if len(changed)+len(gone) == 0 {
		line += " no object differs;"
	}
	in.said = append(in.said, strings.TrimSuffix(line, ";"))
}

// unchanged reports whether the installed object and the source of this release both have the
// recorded hashes. Records of another form (formOf) do not count.
func (in *installer) unchanged(o object, found map[key]string) bool {
	live, there := found[o.key()]
	r, ok := in.records[o.key()]
	return in.comparable && ok && there && r == recorded{o.hash(), live}
}

// installDifferent installs an object unless the installed object is equal, and reports whether it
// did. Statements are collected in todo; it sends them before and after an object that it compares.
func (in *installer) installDifferent(ctx context.Context, o object, found map[key]string, todo *batch) (bool, error) {
	if in.unchanged(o, found) {
		return false, nil
	}
	in.doing = o.at()
	live, there := found[o.key()]
	if !there && o.optional() {
		return false, nil
	}
	compares := there && (o.kind == function || o.kind == view || o.kind == trigger)
	if compares {
		if err := in.flush(ctx, todo); err != nil {
			return false, err
		}
		in.doing = o.at()
		like, fit, err := in.compare(ctx, o, live)
		if err != nil || like {
			return false, err
		}
		if !fit {
			dropped, err := in.dropWithDependents(ctx, o)
			if err != nil {
				return false, err
			}
			for _, d := range dropped { // a later call creates its dependents again
				delete(found, d.key())
			}
		}
	}
	sql, err := in.withArguments(ctx, o, o.install())
	if err != nil {
		return false, err
	}
	todo.add(o, sql)
	if compares || todo.full() {
		err = in.flush(ctx, todo)
	}
	return err == nil, err
}

// withArguments adds the argument types to the name of a function in GRANT and COMMENT statements,
// because a function of another owner with the same name would make the name ambiguous. All
// functions are installed by then, so one query reads the arguments of all.
func (in *installer) withArguments(ctx context.Context, o object, sql string) (string, error) {
	name, ok := strings.CutPrefix(o.name, "FUNCTION ")
	if !ok {
		return sql, nil
	}
	if in.signatures == nil {
		in.signatures = map[string]string{}
		var fn, signature string
		if err := pgrow.Visit(ctx, in.tx, []any{&fn, &signature}, func() { in.signatures[fn] = signature }, `SELECT p.proname::text, p.oid::regprocedure::text
			FROM pg_proc p WHERE p.pronamespace = 'public'::regnamespace AND p.proowner = ($1::text)::regrole ORDER BY p.oid DESC`, in.roleSet.owner()); err != nil {
			return "", err
		}
	}
	signature, ok := in.signatures[name]
	if !ok {
		return "", pgx.ErrNoRows
	}
	return strings.ReplaceAll(sql, o.target()+" ", "FUNCTION "+signature+" "), nil
}

// comparedName is the name under which compare creates the wanted definition of a function, view or
// trigger, until it rolls this back.
const comparedName = "qtop_schema_compared"

// compare creates the object under another name, compares it with the installed object, and rolls
// back. like: the catalogue shows the same text for both. fit: CREATE OR REPLACE can change the
// installed object into the wanted one.
func (in *installer) compare(ctx context.Context, o object, live string) (like, fit bool, err error) {
	sql := o.sql
	if o.kind == trigger {
		sql = fmt.Sprintf("CREATE TABLE public.%s (LIKE public.%s);\n", comparedName, o.relation()) +
			regexp.MustCompile(`\bpublic\.`+o.relation()+`\b`).ReplaceAllString(sql, "public."+comparedName)
	} else {
		sql = strings.Replace(sql, "public."+o.name, "public."+comparedName, 1)
	}
	err = pgx.BeginFunc(ctx, in.tx, func(tx pgx.Tx) error {
		if err := in.exec(ctx, tx, sql); err != nil {
			return err
		}
		if like, err = in.alike(ctx, tx, o, live); err != nil {
			return err
		}
		if fit, err = in.fits(ctx, tx, o); err != nil {
			return err
		}
		return errCompared
	})
	if errors.Is(err, errCompared) {
		err = nil
	}
	return like, fit, err
}

var errCompared = errors.New("compared")

// alike reports whether the catalogue text of the compared object equals live, the text of the
// installed one, apart from the name.
func (in *installer) alike(ctx context.Context, tx pgx.Tx, o object, live string) (bool, error) {
	name := comparedName
	if o.kind == trigger {
		trg, _, _ := strings.Cut(o.name, " on ")
		name = trg + " on " + comparedName
	}
	text, err := readOne(ctx, tx, in.roleSet, o.kind, name)
	if o.kind == trigger {
		text = strings.Replace(text, " ON public."+comparedName+" ", " ON public."+o.relation()+" ", 1)
	}
	return shortHash(text) == live, err
}

// fits reports whether CREATE OR REPLACE can change the installed object: same
// arguments and result of a function, same columns of a view.
func (in *installer) fits(ctx context.Context, tx pgx.Tx, o object) (fits bool, err error) {
	switch o.kind {
	case function:
		err = tx.QueryRow(ctx, `SELECT count(*) = 1 AND bool_and((n.proargtypes, n.prorettype, n.proretset) = (p.proargtypes, p.prorettype, p.proretset)
				AND (n.proallargtypes, n.proargmodes, n.proargnames) IS NOT DISTINCT FROM (p.proallargtypes, p.proargmodes, p.proargnames)
				AND n.pronargdefaults >= p.pronargdefaults)
			FROM pg_proc p, pg_proc n WHERE p.pronamespace = 'public'::regnamespace AND n.pronamespace = 'public'::regnamespace
				AND p.proowner = ($3::text)::regrole AND p.proname = $1 AND n.proname = $2`, o.name, comparedName, in.roleSet.owner()).Scan(&fits)
	case view:
		err = tx.QueryRow(ctx, `SELECT NOT EXISTS (
			SELECT FROM pg_attribute p LEFT JOIN pg_attribute n ON n.attrelid = to_regclass('public.' || $2) AND n.attnum = p.attnum
			WHERE p.attrelid = to_regclass('public.' || $1) AND p.attnum > 0
				AND (p.attname, p.atttypid, p.atttypmod, p.attcollation) IS DISTINCT FROM (n.attname, n.atttypid, n.atttypmod, n.attcollation))`,
			o.name, comparedName).Scan(&fits)
	default:
		fits = true
	}
	return fits, err
}

// record stores the hashes of the objects that are installed now.
func (in *installer) record(ctx context.Context, seeds string) error {
	in.doing = "public.qtop_schema_object"
	found, err := in.catalogue(ctx, allKinds...)
	if err != nil {
		return err
	}
	now := map[key]recorded{}
	for _, o := range in.release.objects {
		live, there := found[o.key()]
		if !there && o.optional() {
			continue
		}
		if !there {
			return fmt.Errorf("%s:%d: %s is not in the catalogue after it was installed", o.file, o.line, o)
		}
		now[o.key()] = recorded{o.hash(), live}
	}
	var kinds, names, sources, installed []string
	for _, k := range slices.SortedFunc(maps.Keys(now), func(a, b key) int {
		return strings.Compare(string(a.kind)+a.name, string(b.kind)+b.name)
	}) {
		kinds, names = append(kinds, string(k.kind)), append(names, k.name)
		sources, installed = append(sources, now[k].source), append(installed, now[k].installed)
	}
	if _, err := in.tx.Exec(ctx, "DELETE FROM public.qtop_schema_object"); err != nil {
		return err
	}
	if _, err := in.tx.Exec(ctx, `INSERT INTO public.qtop_schema_object (kind, name, source, installed)
		SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[])`, kinds, names, sources, installed); err != nil {
		return err
	}
	_, err = in.tx.Exec(ctx, `INSERT INTO public.qtop_schema_code AS c (code, serves, hash, seeds, recorded_form, installed_at, installed_by)
		VALUES ($1, $2, $3, $4, $5, clock_timestamp(), session_user)
		ON CONFLICT (one) DO UPDATE SET code = excluded.code, serves = excluded.serves, hash = excluded.hash, seeds = excluded.seeds,
			recorded_form = excluded.recorded_form, installed_at = excluded.installed_at, installed_by = excluded.installed_by`,
		in.release.Code, in.release.Serves, in.release.Hash, seeds, formOf(in.tx.Conn()))
	return err
}

// planTriggers returns the triggers of existing tables that this attempt will create,
// replace or drop.
func (in *installer) planTriggers(ctx context.Context) ([]object, error) {
	found, err := in.catalogue(ctx, trigger)
	if err != nil {
		return nil, err
	}
	var plan []object
	declares := map[key]bool{}
	for _, o := range in.release.objects {
		if o.kind != trigger {
			continue
		}
		declares[o.key()] = true
		if in.unchanged(o, found) {
			continue
		}
		if live, there := found[o.key()]; there {
			like, _, err := in.compare(ctx, o, live)
			if err != nil && !pgerror.NoFunction(err) { // its function may not exist yet
				return nil, err
			}
			if like {
				continue
			}
		}
		plan = append(plan, o)
	}
	for k := range in.records {
		if k.kind == trigger && !declares[k] {
			plan = append(plan, object{kind: k.kind, name: k.name})
		}
	}
	for _, o := range in.release.dropped {
		if _, there := found[o.key()]; o.kind == trigger && there {
			plan = append(plan, o)
		}
	}
	return plan, nil
}
