package schema

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

// Hash identifies all that this program installs: migrations, code and seeds.
func Hash() string {
	r := Current()
	parts := []string{r.Hash, fmt.Sprint(r.Code, r.Serves, catalogueForm)}
	for _, m := range r.migrations {
		parts = append(parts, m.name, m.up)
	}
	return shortHash(parts...)
}

// Latest is the number of the newest migration that this program knows.
func Latest() int32 { return own().version() }

// SQL is all that `migrate up` runs on an empty database, in its order.
func SQL() string {
	text, _ := Current().SQL("") // no prefix is a good one
	return text
}

// Status says where a database stands beside this program.
type Status struct {
	Current int32    `json:"current"` // number of the newest installed migration; 0 = nothing is installed
	Latest  int32    `json:"latest"`  // and of the newest that this program knows
	Pending []string `json:"pending"` // migrations that the next Up runs

	InstalledCode int    `json:"installed_code"` // 0 = none, or from before code had a number
	InstalledHash string `json:"installed_hash"`
	Code          int    `json:"code"` // what this program carries

	RolePrefix string `json:"role_prefix"` // of the roles of this database; empty = none

	serves int // the oldest code number whose programs the installed code serves
}

// GetStatus reads where the database stands. It needs no right but to connect.
func GetStatus(ctx context.Context, conn *pgx.Conn) (Status, error) {
	return own().status(ctx, conn)
}

// Status is the function of the same purpose, GetStatus, for this release.
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
		s.InstalledCode, s.InstalledHash, s.serves = code.Code, code.Hash, code.Serves
		return err
	})
	return s, err
}

// atOnce reads from one snapshot, for somebody may be migrating right now, and
// with settings under which the catalogue prints every name in full.
func atOnce(ctx context.Context, conn *pgx.Conn, read func(querier) error) error {
	return pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		if err := exec(ctx, tx, settingsSQL); err != nil {
			return err
		}
		return read(tx)
	})
}

// Refusal says why this program must not work on the database and what to do,
// empty when it may: nothing is installed, or code that is older than this program
// needs, or code that no longer serves programs as old as this one.
func (s Status) Refusal() (what, do string) {
	const up = "run qtop migrate up"
	switch {
	case s.Current == 0:
		return "qtop is not installed in this database", up
	case s.InstalledCode == 0:
		return fmt.Sprintf("schema version %d, from before code had numbers, is installed; this qtop needs code %d", s.Current, s.Code), up
	case s.InstalledCode < s.Code:
		return fmt.Sprintf("code %d is installed, this qtop needs code %d", s.InstalledCode, s.Code), up
	case s.serves > s.Code:
		return fmt.Sprintf("code %d is installed, which serves programs of code %d and later; this qtop is of code %d",
			s.InstalledCode, s.serves, s.Code), "use a newer qtop"
	}
	return "", ""
}

// Difference is an object that is not as this program declares it.
type Difference struct {
	Object string `json:"object"` // function fn_job_claim
	Why    string `json:"why"`    // changed by hand, not installed, of another release, left over
	Remedy string `json:"remedy"` // the command or the statement that puts the release's form back

	harm bool // it changes what qtop does
}

const (
	missingByHand = "missing: dropped by hand"
	changedByHand = "changed by hand"
	// upMends is the remedy of all that the code declares.
	upMends = "qtop migrate up puts this program's form back"
)

// Harmful tells a change by hand that changes what qtop does: not of a comment, nor of how
// the rows of a table are stored, nor an index or a column more.
func (d Difference) Harmful() bool { return d.harm }

// Differences compares each table, column, constraint, index, function, view, trigger,
// right, owner and comment of the database with what this program declares, and those of
// the code with what the last migration recorded too. Tables are compared when all
// migrations of this program and no others have run. Of a schema from before objects were
// recorded it says nothing: all of it is replaced by the next Up. Those of tables stand
// first: a remedy of theirs may want a view to be missing.
func Differences(ctx context.Context, conn *pgx.Conn) ([]Difference, error) {
	return Current().Differences(ctx, conn)
}

// Differences is the function of the same name for this release.
func (r *Release) Differences(ctx context.Context, conn *pgx.Conn) (out []Difference, err error) {
	err = atOnce(ctx, conn, func(q querier) error {
		code, err := readCode(ctx, q)
		if err != nil || code.Code == 0 {
			return err
		}
		out, err = r.differences(ctx, q, code.Form == formOf(conn))
		if had, _, _ := strings.Cut(code.Form, "/"); err == nil && had != major(conn) {
			out = append(out, Difference{"record of objects", "made under PostgreSQL " + had + ": changes by hand of functions, views and triggers are not seen under " + major(conn),
				"qtop migrate up compares them and records them anew", false})
		}
		return err
	})
	return out, err
}

// differences compares what is recorded and what is there with what the release
// declares. comparable: the records are of this form.
func (r *Release) differences(ctx context.Context, q querier, comparable bool) ([]Difference, error) {
	records, err := readRecords(ctx, q)
	if err != nil {
		return nil, err
	}
	set, err := storedRoles(ctx, q)
	if err != nil {
		return nil, err
	}
	found, err := readCatalogue(ctx, q, set)
	if err != nil {
		return nil, err
	}
	at, err := version(ctx, q)
	if err != nil {
		return nil, err
	}
	tables, astray := []Difference{}, map[string]bool{}
	if at == r.Version() {
		if tables, astray, err = r.tableDifferences(ctx, q, set); err != nil {
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
		case missing[o.subject()]: // its rights and comments went with it
			continue
		case astray[o.subject()], (o.kind == function || o.kind == view) && astray[o.name]: // whose it is comes first
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
		out = append(out, Difference{o.String(), why, upMends, (why == missingByHand || why == changedByHand) && o.kind != comment})
	}
	for k := range records {
		out = append(out, Difference{string(k.kind) + " " + k.name, "left over from another release", upMends, false})
	}
	slices.SortStableFunc(out, func(a, b Difference) int { return strings.Compare(a.Why, b.Why) })
	return append(tables, out...), nil
}
