package schema

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

// Hash identifies everything that this program installs: migrations, code and seeds.
func Hash() string {
	r := Current()
	parts := []string{r.Hash, fmt.Sprint(r.Code, r.Serves, catalogueForm)}
	for _, m := range r.migrations {
		parts = append(parts, m.name, m.up)
	}
	return shortHash(parts...)
}

// Latest returns the number of the newest migration of this program.
func Latest() int32 { return own().version() }

// SQL returns everything that `migrate up` runs on an empty database, in order.
func SQL() string {
	text, _ := Current().SQL("") // an empty prefix is valid
	return text
}

// Status compares the release in a database with this program.
type Status struct {
	Current int32    `json:"current"` // number of the newest installed migration; 0 = nothing is installed
	Latest  int32    `json:"latest"`  // number of the newest migration of this program
	Pending []string `json:"pending"` // migrations that the next Up runs

	InstalledCode int    `json:"installed_code"` // 0 = nothing is installed, or code had no number yet
	InstalledHash string `json:"installed_hash"`
	Code          int    `json:"code"` // number of this program's code

	RolePrefix string `json:"role_prefix"` // prefix of the database's roles; empty = no prefix

	Serves int `json:"serves"` // the oldest code number whose programs the installed code serves
}

// GetStatus reads the status of a database. It needs only the right to connect.
func GetStatus(ctx context.Context, conn *pgx.Conn) (Status, error) {
	return own().status(ctx, conn)
}

// Status is like GetStatus, for this release.
func (r *Release) Status(ctx context.Context, conn *pgx.Conn) (Status, error) {
	return r.numbers.status(ctx, conn)
}

func (n numbers) status(ctx context.Context, conn *pgx.Conn) (Status, error) {
	s := Status{Latest: n.version(), Code: n.Code, Pending: []string{}}
	err := atOnce(ctx, conn, func(q querier) error {
		var err error
		if s.Current, err = version(ctx, q); err != nil {
			return err
		}
		for i, name := range n.names {
			if int32(i) >= s.Current { //nolint:gosec // a few dozen
				s.Pending = append(s.Pending, name+".sql")
			}
		}
		if s.RolePrefix, err = RolePrefix(ctx, q); err != nil {
			return err
		}
		code, err := readCode(ctx, q)
		s.InstalledCode, s.InstalledHash, s.Serves = code.Code, code.Hash, code.Serves
		return err
	})
	return s, err
}

// atOnce calls read in a read-only transaction with one snapshot, because a migration may be
// running, and with settings under which the catalogue prints every name in full.
func atOnce(ctx context.Context, conn *pgx.Conn, read func(querier) error) error {
	return pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		if err := exec(ctx, tx, settingsSQL); err != nil {
			return err
		}
		return read(tx)
	})
}

// Refusal returns why this program must not work on the database, and the remedy; both are empty if
// it may. Reasons: nothing is installed; the installed code is older than this program needs, or its
// migrations have not run (builds between two releases have one code number); the installed code no
// longer serves programs as old as this one.
func (s Status) Refusal() (what, do string) {
	const up = "run qtop migrate up"
	switch {
	case s.Current == 0:
		return "qtop is not installed in this database", up
	case s.InstalledCode == 0:
		return fmt.Sprintf("schema version %d, from before code had numbers, is installed; this qtop needs code %d", s.Current, s.Code), up
	case s.InstalledCode < s.Code:
		return fmt.Sprintf("code %d is installed, this qtop needs code %d", s.InstalledCode, s.Code), up
	case s.Current < s.Latest:
		return fmt.Sprintf("schema version %d is installed, this qtop needs %d", s.Current, s.Latest), up
	case s.Serves > s.Code:
		return fmt.Sprintf("code %d is installed, which serves programs of code %d and later; this qtop is of code %d",
			s.InstalledCode, s.Serves, s.Code), "use a newer qtop"
	}
	return "", ""
}

// Difference is an object that differs from what this program declares.
type Difference struct {
	Object string `json:"object"` // function fn_job_claim
	Why    string `json:"why"`    // changed by hand, not installed, of another release, left over
	Remedy string `json:"remedy"` // the command or statement that restores the declared form

	harm bool // the difference changes what qtop does
}

const (
	missingByHand = "missing: dropped by hand"
	changedByHand = "changed by hand"
	// upRemedy is the remedy for all objects that the code declares.
	upRemedy = "qtop migrate up restores this program's form"
)

// Harmful reports whether the difference changes the behaviour of qtop. Differences of comments,
// storage parameters and additional indexes or columns are harmless.
func (d Difference) Harmful() bool { return d.harm }

// Differences compares each table, column, constraint, index, function, view, trigger, right, owner
// and comment of the database with the declarations of this program, and the objects of the code
// also with the records of the last migration. Tables are compared only if exactly the migrations
// of this program have run. A schema that has no records of its objects yet has no differences: the
// next Up replaces all of it. Differences of tables are first, because their remedies may require
// that a view is missing.
func Differences(ctx context.Context, conn *pgx.Conn) ([]Difference, error) {
	return Current().Differences(ctx, conn)
}

// Differences is like the function Differences, for this release.
func (r *Release) Differences(ctx context.Context, conn *pgx.Conn) (out []Difference, err error) {
	err = atOnce(ctx, conn, func(q querier) error {
		code, err := readCode(ctx, q)
		if err != nil || code.Code == 0 {
			return err
		}
		out, err = r.differences(ctx, q, code.Form == formOf(conn))
		if had, _, _ := strings.Cut(code.Form, "/"); err == nil && had != major(conn) {
			out = append(out, Difference{"record of objects", "made under PostgreSQL " + had + ": changes by hand of functions, views and triggers are not seen under " + major(conn),
				"qtop migrate up compares them and records them again", false})
		}
		return err
	})
	return out, err
}

// differences compares the records and the catalogue with the declarations of the release.
// comparable: the records have the form (formOf) of this program on this server.
func (r *Release) differences(ctx context.Context, q querier, comparable bool) ([]Difference, error) {
	records, err := readRecords(ctx, q)
	if err != nil {
		return nil, err
	}
	set, err := storedRoles(ctx, q)
	if err != nil {
		return nil, err
	}
	found, err := readCatalogue(ctx, q, set, allKinds...)
	if err != nil {
		return nil, err
	}
	at, err := version(ctx, q)
	if err != nil {
		return nil, err
	}
	tables, astray := []Difference{}, map[string]bool{}
	if at == r.Version() {
		if tables, astray, err = r.tableDifferences(ctx, q, set, records); err != nil {
			return nil, err
		}
	}
	out := []Difference{}
	missing := map[string]bool{}
	for _, o := range r.objects {
		live, there := found[o.key()]
		rec, known := records[o.key()]
		delete(records, o.key())
		if !there && (o.kind == function || o.kind == view) {
			missing[o.name] = true
		}
		var why string
		switch {
		case missing[o.subject()], !there && o.optional(): // rights and comments of a missing object are missing too
			continue
		case astray[o.subject()], (o.kind == function || o.kind == view) && astray[o.name]: // the wrong owner is reported instead
			continue
		case !there && !known:
			why = "not installed"
		case !there:
			why = missingByHand
		case !known || rec.source != o.hash():
			why = "of another release"
		case comparable && rec.installed != live:
			why = changedByHand
		default:
			continue
		}
		out = append(out, Difference{o.String(), why, upRemedy, (why == missingByHand || why == changedByHand) && o.kind != comment})
	}
	for k := range records {
		out = append(out, Difference{string(k.kind) + " " + k.name, "left over from another release", upRemedy, false})
	}
	slices.SortStableFunc(out, func(a, b Difference) int { return strings.Compare(a.Why, b.Why) })
	return append(tables, out...), nil
}
