package schema

import (
	"slices"
	"strings"

	"github.com/qtop/qtop/pgclient/queue"
)

// Remedies: the statement that repairs each difference. Each is one line for psql, and gives the
// objects that it creates the right owner, whichever login runs it.

// alter returns the beginning of the statement that changes a part of a table or domain.
func (r *Release) alter(k part) string {
	return queue.Choose(r.tables.has(domain, k.relation()), "ALTER DOMAIN public.", "ALTER TABLE public.") + quoted(k.relation()) + " "
}

// partitioned reports whether the table is partitioned, so that its indexes cannot be created concurrently.
func (r *Release) partitioned(table_ string) bool {
	return strings.Contains(r.tables[part{table, table_}], "PARTITION BY")
}

// readable returns the definition in one line, for a person to read.
func readable(form string) string {
	return queue.Clean(strings.ReplaceAll(strings.TrimSuffix(strings.Replace(form, "\tNULL\t", "\t", 1), "\tNULL"), "\t", " ")).Cut(200).String()
}

// missing returns the difference for a part that does not exist.
func (r *Release) missing(k part, want, owner string) Difference {
	d := Difference{Object: k.String(), Why: missingByHand, harm: true}
	form := strings.ReplaceAll(want, "\t", " ")
	of := func(what string) string { return "; ALTER " + what + " public." + k.ident() + " OWNER TO " + owner }
	switch k.kind {
	case storage:
		d.harm, d.Remedy = false, r.alter(k)+"SET ("+form+")"
	case column:
		d.Remedy = r.alter(k) + "ADD COLUMN " + k.ident() + " " + form
	case constraint:
		d.Remedy = r.alter(k) + "ADD CONSTRAINT " + k.ident() + " " + form
	case index:
		d.Remedy = r.makeIndex(k, want)
	case sequence:
		d.Remedy = "CREATE SEQUENCE public." + k.ident() + " " + form + of("SEQUENCE")
	case domain:
		d.Remedy = "CREATE DOMAIN public." + k.ident() + " AS " + form + of("DOMAIN")
	case enum:
		d.Remedy = "CREATE TYPE public." + k.ident() + " AS ENUM (" + form + ")" + of("TYPE")
	default:
		d.Remedy = "restore it from a backup: its rows are lost; without a backup, qtop migrate sql prints the statements that create it empty"
	}
	return d
}

func (k part) String() string { return string(k.kind) + " " + k.name }

// makeIndex returns the statement that creates an index, concurrently where possible.
func (r *Release) makeIndex(k part, want string) string {
	if r.partitioned(k.relation()) {
		return strings.Replace(want, " ON ONLY ", " ON ", 1)
	}
	return strings.Replace(want, "INDEX ", "INDEX CONCURRENTLY ", 1)
}

func (r *Release) dropIndex(k part) string {
	return "DROP INDEX " + queue.Choose(r.partitioned(k.relation()), "", "CONCURRENTLY ") + "public." + k.ident()
}

// added returns the difference for a part that is not qtop's, on a table or domain of qtop.
func (r *Release) added(k part, live string) Difference {
	d := Difference{Object: k.String(), Why: "is not qtop's: " + readable(live)}
	switch k.kind {
	case storage:
		d.Remedy = r.alter(k) + "RESET (" + settingNames(live) + ")"
	case column:
		d.harm = strings.Contains(live, "NOT NULL") && !strings.Contains(live, "DEFAULT ") && !strings.Contains(live, "GENERATED ")
		d.Remedy = r.alter(k) + "DROP COLUMN " + k.ident()
	case constraint:
		d.harm, d.Remedy = true, r.alter(k)+"DROP CONSTRAINT "+k.ident()
	default:
		d.harm, d.Remedy = strings.Contains(live, " UNIQUE "), r.dropIndex(k)
	}
	return d
}

func settingNames(form string) string {
	var out []string
	for setting := range strings.SplitSeq(form, ", ") {
		name, _, _ := strings.Cut(setting, "=")
		out = append(out, name)
	}
	return strings.Join(out, ", ")
}

// changed returns the difference for a part whose definition was changed.
func (r *Release) changed(k part, want, live string) Difference {
	d := Difference{Object: k.String(), Why: changedByHand + ": " + readable(live), harm: true}
	switch k.kind {
	case table:
		d.Remedy = r.alter(k) + queue.Choose(strings.Contains(live, "UNLOGGED"), "SET LOGGED", "SET UNLOGGED")
	case storage:
		d.harm, d.Remedy = false, r.alter(k)+"RESET ("+settingNames(live)+"), SET ("+want+")"
	case column:
		d.Remedy = r.changedColumn(k, want, live)
	case constraint:
		again := r.alter(k) + "DROP CONSTRAINT " + k.ident() + queue.Choose(r.tables.has(domain, k.relation()), "; "+r.alter(k), ", ") + "ADD CONSTRAINT " + k.ident() + " " + want
		d.Remedy = queue.Choose(live == want+" NOT VALID", r.alter(k)+"VALIDATE CONSTRAINT "+k.ident(), again)
	case index:
		d.Remedy = queue.Choose(live == want+"\tINVALID", "REINDEX INDEX CONCURRENTLY public."+k.ident(), r.dropIndex(k)+"; "+r.makeIndex(k, want))
	case sequence:
		d.Remedy = "ALTER SEQUENCE public." + k.ident() + " " + want
	case domain:
		d.Remedy = changedDomain(r.alter(k), want, live)
	default:
		d.harm, d.Remedy = changedEnum(k, want, live)
	}
	return d
}

// parts splits the form of a column or a domain into type, null and default.
func parts(form string) (of, null, value string) {
	all := append(strings.SplitN(form, "\t", 3), "", "")
	return all[0], all[1], all[2]
}

// changedColumn returns the statement that restores type, NOT NULL and default of a column.
func (r *Release) changedColumn(k part, want, live string) string {
	of, null, value := parts(want)
	liveOf, liveNull, liveValue := parts(live)
	at := "ALTER COLUMN " + k.ident() + " "
	var do []string
	after := ""
	generated := func(v string) bool { return strings.HasPrefix(v, "GENERATED ALWAYS AS (") }
	identity := func(v string) bool { return strings.HasSuffix(v, " AS IDENTITY") }
	if value != liveValue && generated(value) {
		return r.alter(k) + "DROP COLUMN " + k.ident() + ", ADD COLUMN " + k.ident() + " " + strings.ReplaceAll(want, "\t", " ")
	}
	if value != liveValue && liveValue != "" && !(identity(value) && identity(liveValue)) {
		do = append(do, at+"DROP "+queue.Choose(generated(liveValue), "EXPRESSION", queue.Choose(identity(liveValue), "IDENTITY", "DEFAULT")))
	}
	if of != liveOf {
		plain, _, _ := strings.Cut(of, " COLLATE ")
		do = append(do, at+"TYPE "+of+" USING "+k.ident()+"::"+plain)
	}
	if null != liveNull {
		do = append(do, at+queue.Choose(null == "NOT NULL", "SET", "DROP")+" NOT NULL")
	}
	switch {
	case value == liveValue:
	case identity(value) && identity(liveValue):
		do = append(do, at+"SET "+strings.TrimSuffix(value, " AS IDENTITY"))
	case identity(value):
		do = append(do, at+"ADD "+value)
		name := "public." + quoted(k.relation())
		after = "; SELECT setval(pg_get_serial_sequence('" + name + "', '" + k.ident() + "'), (SELECT COALESCE(max(" + k.ident() + "), 0) + 1 FROM " + name + "), false)"
	case value != "":
		do = append(do, at+"SET "+value)
	}
	return r.alter(k) + strings.Join(do, ", ") + after
}

// changedDomain returns the statement that restores NOT NULL and default of a domain.
func changedDomain(alter, want, live string) string {
	of, null, value := parts(want)
	liveOf, liveNull, liveValue := parts(live)
	var do []string
	if null != liveNull {
		do = append(do, alter+queue.Choose(null == "NOT NULL", "SET", "DROP")+" NOT NULL")
	}
	if value != liveValue {
		do = append(do, alter+queue.Choose(value == "", "DROP DEFAULT", "SET "+value))
	}
	if of != liveOf {
		return "restore it from a backup: PostgreSQL cannot change the type of a domain"
	}
	return strings.Join(do, "; ")
}

// changedEnum returns the statement that renames a value back. harm = false if values were only
// added: added values do no harm and cannot be removed.
func changedEnum(k part, want, live string) (harm bool, remedy string) {
	old, now := strings.Split(want, ", "), strings.Split(live, ", ")
	lost := slices.DeleteFunc(slices.Clone(old), func(v string) bool { return slices.Contains(now, v) })
	more := slices.DeleteFunc(slices.Clone(now), func(v string) bool { return slices.Contains(old, v) })
	switch {
	case len(lost) == 0:
		return false, "leave it: PostgreSQL cannot remove a value of a type"
	case len(lost) == 1 && len(more) == 1:
		return true, "ALTER TYPE public." + k.ident() + " RENAME VALUE " + more[0] + " TO " + lost[0]
	}
	return true, "rename the values back, with ALTER TYPE public." + k.ident() + " RENAME VALUE: they were " + want
}
