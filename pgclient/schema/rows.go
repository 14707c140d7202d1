package schema

import (
	"context"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/qtop/qtop/pgclient/pgrow"
)

// The rows that the code relies on: those that seeds.sql inserts. rows.txt has their keys, read from a
// database in which only the seeds have inserted rows. A restore of some tables, or a DELETE, leaves them
// out; Up then runs the seeds again.

// seeded is a table with rows of the seeds.
type seeded struct {
	table, columns string   // columns: those of the primary key, with commas
	keys           []string // the values of each key, with tabs
}

// loadRows reads rows.txt: table, columns of the key and their values, separated by tabs.
func loadRows(fsys fs.FS) ([]seeded, error) {
	text, err := fs.ReadFile(fsys, "rows.txt")
	var out []seeded
	for line := range strings.Lines(string(text)) {
		parts := strings.SplitN(strings.TrimSuffix(line, "\n"), "\t", 3)
		if len(parts) < 3 {
			continue
		}
		n := slices.IndexFunc(out, func(s seeded) bool { return s.table == parts[0] })
		if n < 0 {
			n, out = len(out), append(out, seeded{table: parts[0], columns: parts[1]})
		}
		out[n].keys = append(out[n].keys, parts[2])
	}
	return out, err
}

// Missing is a table that lacks rows of the seeds.
type Missing struct {
	Table string
	Rows  []string // the keys of the rows; nil = the only row of the table
}

func (m Missing) String() string {
	if m.Rows == nil {
		return m.Table
	}
	return m.Table + " " + strings.Join(m.Rows, ", ")
}

// MissingRows returns the rows of the seeds that the database lacks: it needs SELECT on their tables.
// same = the seeds of this release ran in the database last; without that, nothing is compared.
func MissingRows(ctx context.Context, conn *pgx.Conn) (missing []Missing, same bool, err error) {
	r := Current()
	err = atOnce(ctx, conn, func(q querier) error {
		code, err := readCode(ctx, q)
		if same = code.Seeds == shortHash(r.seeds); err != nil || !same {
			return err
		}
		missing, err = r.missingRows(ctx, q)
		return err
	})
	return missing, same, err
}

func (r *Release) missingRows(ctx context.Context, q querier) (out []Missing, err error) {
	there, err := pgrow.Column[string](ctx, q, `SELECT c.relname::text FROM pg_class c WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p')`)
	if err != nil {
		return nil, err
	}
	for _, s := range r.rows {
		if !slices.Contains(there, s.table) { // a difference, which Differences returns
			continue
		}
		lacks, err := pgrow.Column[string](ctx, q, fmt.Sprintf(`SELECT k FROM unnest($1::text[]) WITH ORDINALITY x (k, n)
			WHERE NOT EXISTS (SELECT FROM public.%s t WHERE concat_ws(E'\t', %s) = k) ORDER BY n`, s.table, "t."+strings.ReplaceAll(s.columns, ",", ", t.")), s.keys)
		if err != nil {
			return nil, err
		}
		switch {
		case len(lacks) > 0 && len(s.keys) == 1 && (s.columns == "id" || s.columns == "one"): // such a table has a single row
			out = append(out, Missing{Table: s.table})
		case len(lacks) > 0:
			for i := range lacks {
				lacks[i] = strings.ReplaceAll(lacks[i], "\t", "/")
			}
			out = append(out, Missing{s.table, lacks})
		}
	}
	return out, nil
}
