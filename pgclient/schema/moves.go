package schema

import (
	"context"
	"fmt"
	"io/fs"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/qtop/qtop/pgclient/queue"
)

func loadMoves(fsys fs.FS) ([]move, error) {
	names, err := fs.Glob(fsys, "moves/*.sql")
	if err != nil {
		return nil, err
	}
	var out []move
	for _, name := range names {
		text, err := readSQL(fsys, name)
		if err != nil {
			return nil, err
		}
		all := statements(text)
		if len(all) != 1 {
			return nil, fmt.Errorf("%s: a move must be one statement, not %d", name, len(all))
		}
		out = append(out, move{strings.TrimSuffix(strings.TrimPrefix(name, "moves/"), ".sql"), all[0].sql})
	}
	return out, nil
}

// runMoves runs each unfinished move, batch by batch, until a batch changes no row.
// Each batch commits together with the number of rows moved so far, so an interrupted
// move continues where it stopped.
func (r *Release) runMoves(ctx context.Context, conn *pgx.Conn, progress func(string)) error {
	if len(r.moves) == 0 {
		return nil
	}
	set, err := storedRoles(ctx, conn)
	if err != nil {
		return explain(err, "moves")
	}
	for _, m := range r.moves {
		ended := false
		for !ended {
			var total int64
			err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
				if err := exec(ctx, tx, sessionSQL+"\n"+set.assume()+";"); err != nil {
					return err
				}
				// The row lock prevents a second migration from moving the same batch.
				err := tx.QueryRow(ctx, `INSERT INTO public.qtop_schema_move AS q (name) VALUES ($1)
					ON CONFLICT (name) DO UPDATE SET name = excluded.name RETURNING q.moved, q.ended_at IS NOT NULL`, m.name).Scan(&total, &ended)
				if err != nil || ended {
					return err
				}
				sql, err := expand(m.sql, set)
				if err != nil {
					return err
				}
				tag, err := tx.Exec(ctx, sql)
				if err != nil {
					return err
				}
				total += tag.RowsAffected()
				ended = tag.RowsAffected() == 0
				_, err = tx.Exec(ctx, `UPDATE public.qtop_schema_move SET moved = $2, ended_at = CASE WHEN $3 THEN clock_timestamp() END
					WHERE name = $1`, m.name, total, ended)
				if ended {
					progress(fmt.Sprintf("move %s: done, %s", m.name, queue.Plural(total, "row", "rows")))
				}
				return err
			})
			if err != nil {
				return explain(err, "moves/"+m.name+".sql")
			}
		}
	}
	return nil
}
