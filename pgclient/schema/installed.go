package schema

import (
	"bufio"
	"context"
	"fmt"
	"io/fs"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/qtop/qtop/pgclient/pgrow"
)

// thing is an object of the catalogue, with the name that PostgreSQL prints for it, independent of
// session settings, such as index public.ix_job_queue_due.
type thing struct {
	class, oid uint32
	sub        int32 // column of a table; 0 = the whole object
	kind, name string
	owner      string // "" = this kind of object has no owner
	// inner = the object only exists as part of another object and needs no name: a row type, an
	// internal trigger, or an object that a partition inherits from its parent.
	inner bool
	// leaf = the object is a partition of the table parent, or a trigger on a partition.
	leaf   bool
	parent string
}

func (t thing) String() string { return t.kind + " " + t.name }

// withOwner returns the name and the owner, so that a reader of the report can ask the owner.
func (t thing) withOwner() string {
	if t.owner == "" {
		return t.String()
	}
	return fmt.Sprintf("%s (owner %s)", t, t.owner)
}

// ownThings are the objects of every kind that a release makes in schema public, by their names in
// the catalogue: the content of objects.txt.
type ownThings struct {
	things  map[string]bool            // function public.fn_x(text)
	columns map[string]map[string]bool // by table
}

// readOwn reads objects.txt.
func readOwn(fsys fs.FS) (ownThings, error) {
	own := ownThings{things: map[string]bool{}, columns: map[string]map[string]bool{}}
	text, err := fs.ReadFile(fsys, "objects.txt")
	if err != nil {
		return own, err
	}
	lines := bufio.NewScanner(strings.NewReader(string(text)))
	for lines.Scan() {
		line := lines.Text()
		if table, columns, ok := strings.Cut(line, ": "); ok && strings.HasPrefix(line, "columns ") {
			of := map[string]bool{}
			for _, c := range strings.Fields(columns) {
				of[c] = true
			}
			own.columns[strings.TrimPrefix(table, "columns ")] = of
		} else if line != "" && !strings.HasPrefix(line, "#") {
			own.things[line] = true
		}
	}
	return own, lines.Err()
}

// relations returns the tables, views, sequences and indexes of the list, without their schema.
func (o ownThings) relations() []string {
	var out []string
	for line := range o.things {
		kind, name, _ := strings.Cut(line, " ")
		if name, ok := strings.CutPrefix(name, "public."); ok && slices.Contains([]string{"table", "view", "sequence", "index"}, kind) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// functions returns the functions of the list with their argument types.
func (o ownThings) functions() []string {
	var out []string
	for line := range o.things {
		if name, ok := strings.CutPrefix(line, "function "); ok {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// thingColumns completes a query for rows (class, oid, sub) with the columns of thing.
const thingColumns = `
SELECT DISTINCT x.class, x.oid, x.sub, i.type, i.identity, COALESCE(pg_get_userbyid(COALESCE(c.relowner, p.proowner, CASE WHEN t.typrelid = 0 THEN t.typowner END)), ''),
	COALESCE(c.relkind = 't' OR c.relnamespace = 'pg_toast'::regnamespace OR c.relkind IN ('i', 'I') AND c.relispartition, false)
		OR COALESCE(t.typrelid <> 0 AND (SELECT k.relkind <> 'c' FROM pg_class k WHERE k.oid = t.typrelid), false) OR COALESCE(t.typcategory = 'A' AND t.typelem <> 0, false)
		OR COALESCE(r.rulename = '_RETURN', false) OR COALESCE(g.tgisinternal OR g.tgparentid <> 0, false)
		OR COALESCE(o.contype IN ('n', 't') OR o.conparentid <> 0 OR o.coninhcount > 0, false)
		OR COALESCE(ak.relispartition, false) OR x.sub <> 0 AND COALESCE(c.relispartition, false),
	COALESCE(c.relkind IN ('r', 'p') AND c.relispartition, (SELECT k.relispartition FROM pg_class k WHERE k.oid = g.tgrelid), false),
	COALESCE((SELECT k.relname::text FROM pg_inherits h JOIN pg_class k ON k.oid = h.inhparent WHERE h.inhrelid = c.oid AND c.relispartition
		AND k.relnamespace = 'public'::regnamespace LIMIT 1), '')
FROM x CROSS JOIN LATERAL pg_identify_object(x.class, x.oid, x.sub) i
LEFT JOIN pg_class c ON x.class = 'pg_class'::regclass AND c.oid = x.oid
LEFT JOIN pg_proc p ON x.class = 'pg_proc'::regclass AND p.oid = x.oid
LEFT JOIN pg_type t ON x.class = 'pg_type'::regclass AND t.oid = x.oid
LEFT JOIN pg_rewrite r ON x.class = 'pg_rewrite'::regclass AND r.oid = x.oid
LEFT JOIN pg_trigger g ON x.class = 'pg_trigger'::regclass AND g.oid = x.oid
LEFT JOIN pg_constraint o ON x.class = 'pg_constraint'::regclass AND o.oid = x.oid
LEFT JOIN pg_attrdef a ON x.class = 'pg_attrdef'::regclass AND a.oid = x.oid LEFT JOIN pg_class ak ON ak.oid = a.adrelid
ORDER BY 4, 5`

// beginsSQL selects the relations, functions and types that an installation makes:
// those of the owner $1 in schema public, and the version table $2.
const beginsSQL = `WITH x (class, oid, sub) AS (
	SELECT 'pg_class'::regclass::oid, c.oid, 0 FROM pg_class c WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p', 'v', 'S')
		AND NOT c.relispartition AND (c.relowner = to_regrole($1) OR c.oid = to_regclass($2))
	UNION ALL SELECT 'pg_proc'::regclass, p.oid, 0 FROM pg_proc p WHERE p.pronamespace = 'public'::regnamespace AND p.proowner = to_regrole($1)
	UNION ALL SELECT 'pg_type'::regclass, t.oid, 0 FROM pg_type t WHERE t.typnamespace = 'public'::regnamespace AND t.typowner = to_regrole($1) AND t.typtype <> 'c')` + thingColumns

// aboveSQL selects the objects that depend on the objects $1, $2. If $3 of an object is false, it
// leaves out the parts of that object, which are dropped with it. UNION: a view depends on each
// column that it reads, and thingColumns names every row.
const aboveSQL = `WITH f AS MATERIALIZED (SELECT * FROM unnest($1::oid[], $2::oid[], $3::bool[]) u (class, oid, parts)), x (class, oid, sub) AS (
	SELECT d.classid, d.objid, d.objsubid FROM f JOIN pg_depend d ON d.refclassid = f.class AND d.refobjid = f.oid
	WHERE (d.classid, d.objid) <> (f.class, f.oid) AND (f.parts OR d.deptype = 'n' OR d.classid = 'pg_type'::regclass)
	UNION SELECT 'pg_class'::regclass, r.ev_class, 0 FROM f JOIN pg_rewrite r ON f.class = 'pg_rewrite'::regclass AND r.oid = f.oid WHERE r.rulename = '_RETURN')` + thingColumns

func readThings(ctx context.Context, q querier, sql string, args ...any) ([]thing, error) {
	return pgrow.Each(ctx, q, func(row pgx.CollectableRow) (t thing, err error) {
		return t, row.Scan(&t.class, &t.oid, &t.sub, &t.kind, &t.name, &t.owner, &t.inner, &t.leaf, &t.parent)
	}, sql, args...)
}

var leafName = regexp.MustCompile(`^public\.(\w+?)_(default|[0-9]{4}_[0-9]{2}(?:_[0-9]{2})?)$`)

// ourLeaf reports whether t is a partition that fn_queue_partitions_ensure makes, or the guard of
// such a partition against TRUNCATE.
func ourLeaf(t thing, owner string) bool {
	if m := leafName.FindStringSubmatch(t.name); t.leaf && m != nil {
		return m[1] == t.parent && t.owner == owner
	}
	name, on, _ := strings.Cut(t.name, " on ")
	return t.kind == "trigger" && t.leaf && leafName.MatchString(on) && name == "trg_"+strings.TrimPrefix(on, "public.")+"_no_truncate"
}

// detached reports whether t is the guard against TRUNCATE of a partition that somebody detached: its
// table stays, and needs the function of the guard.
func (t thing) detached() bool {
	name, on, _ := strings.Cut(t.name, " on ")
	return t.kind == "trigger" && !t.leaf && leafName.MatchString(on) && name == "trg_"+strings.TrimPrefix(on, "public.")+"_no_truncate"
}

// walkInstalled calls see for everything that an installation made and everything that depends on
// it. see reports whether the thing belongs to the installation; if it does not, walkInstalled
// skips the parts of the thing. first: the thing belongs to the owner, and its dependencies are not
// known yet.
func walkInstalled(ctx context.Context, q querier, owner string, see func(t thing, first bool) bool) error {
	type key struct {
		class, oid uint32
		sub        int32
	}
	seen := map[key]bool{}
	level, err := readThings(ctx, q, beginsSQL, owner, versionTable)
	for first := true; err == nil && len(level) > 0; first = false {
		var classes, oids []uint32
		var parts []bool
		for _, t := range level {
			k := key{t.class, t.oid, t.sub}
			if seen[k] {
				continue
			}
			ours := t.inner || see(t, first)
			if first && !ours { // not made by qtop; may still depend on an object of qtop
				continue
			}
			seen[k] = true
			if t.sub != 0 && !ours { // a column of a table of another owner
				continue
			}
			classes, oids, parts = append(classes, t.class), append(oids, t.oid), append(parts, ours)
		}
		level = nil
		if len(oids) > 0 {
			level, err = readThings(ctx, q, aboveSQL, classes, oids, parts)
		}
	}
	return err
}

// columnsSQL lists the columns of the tables of owner $1 in schema public.
const columnsSQL = `SELECT format('public.%s', c.relname), array_agg(a.attname::text ORDER BY a.attnum) FROM pg_class c
	JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
	WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition AND (c.relowner = to_regrole($1) OR c.oid = to_regclass($2))
	GROUP BY c.relname ORDER BY 1`

// foreign lists the objects that depend on the objects that Down removes and are not part of this
// release: those that would prevent the removal and those that would be dropped with it, such as an
// index on a table of qtop.
func (r *Release) foreign(ctx context.Context, q querier, set roleSet, from int32, records map[key]recorded) ([]string, error) {
	found := map[string]bool{}
	var older func(name string) bool // whether an older version may have an object of this name that this one lacks
	if from < r.Version() {
		text := r.text()
		older = func(name string) bool {
			return regexp.MustCompile(`\b` + regexp.QuoteMeta(name[strings.LastIndexByte(name, '.')+1:]) + `\b`).MatchString(text)
		}
	}
	err := walkInstalled(ctx, q, set.owner(), func(t thing, first bool) bool {
		if t.detached() {
			found[t.withOwner()] = true
			return false
		}
		if r.own.things[t.String()] && (t.owner == "" || t.owner == set.owner() || t.name == versionTable) || ourLeaf(t, set.owner()) || r.declares(t, set, records) {
			return true
		}
		if older != nil {
			name, _, _ := strings.Cut(t.name, " on ")
			name, _, _ = strings.Cut(name, "(")
			if t.kind == "default value" || older(name) {
				return true
			}
		}
		if !first {
			found[t.withOwner()] = true
		}
		return false
	})
	if err != nil {
		return nil, err
	}
	var table string
	var columns []string
	err = pgrow.Visit(ctx, q, []any{&table, &columns}, func() {
		of, ours := r.own.columns[table]
		for _, c := range columns {
			if ours && !of[c] && (older == nil || !older(c)) {
				found["column "+table+"."+c] = true
			}
		}
	}, columnsSQL, set.owner(), versionTable)
	return slices.Sorted(maps.Keys(found)), err
}

// declares reports whether this release or the installed one declares the function,
// view or trigger.
func (r *Release) declares(t thing, set roleSet, records map[key]recorded) bool {
	name := strings.TrimPrefix(t.name, "public.")
	o := object{kind: kind(t.kind)}
	switch o.kind {
	case function:
		if t.owner != set.owner() {
			return false
		}
		o.name, _, _ = strings.Cut(name, "(")
	case view:
		if t.owner != set.owner() {
			return false
		}
		o.name = name
	case trigger:
		trg, table, _ := strings.Cut(name, " on ")
		o.name = trg + " on " + strings.TrimPrefix(table, "public.")
	default:
		return false
	}
	_, known := records[o.key()]
	return known || slices.ContainsFunc(r.objects, o.same) || slices.ContainsFunc(r.dropped, o.same)
}

// text returns all SQL of the release.
func (r *Release) text() string {
	var b strings.Builder
	for _, m := range r.migrations {
		b.WriteString(m.up + "\n" + m.down + "\n")
	}
	for _, o := range r.objects {
		b.WriteString(o.sql + "\n")
	}
	return b.String()
}

// Objects lists what is installed and everything that depends on it, in the form of objects.txt.
func Objects(ctx context.Context, q querier) (lines []string, err error) {
	set, err := storedRoles(ctx, q)
	if err != nil {
		return nil, err
	}
	if err := walkInstalled(ctx, q, set.owner(), func(t thing, _ bool) bool {
		if !ourLeaf(t, set.owner()) {
			lines = append(lines, t.String())
		}
		return true
	}); err != nil {
		return nil, err
	}
	slices.Sort(lines)
	var table string
	var columns []string
	err = pgrow.Visit(ctx, q, []any{&table, &columns}, func() { lines = append(lines, "columns "+table+": "+strings.Join(columns, " ")) },
		columnsSQL, set.owner(), versionTable)
	return lines, err
}
