package demo

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// imports makes the notifications of the demo until ctx ends: an importer
// writes documents (information units) in several pieces, and people write
// notes, comments and drafts. All of them call the SQL functions fn_iu_….
func imports(ctx context.Context, pool *pgxpool.Pool) error {
	run := time.Now().UTC().Format("0102-150405") // makes addresses unique, also among earlier runs on the same database
	document, piece, pieces := 0, 0, 0
	return every(ctx, 400*time.Millisecond, func() error {
		if piece == pieces {
			document, piece, pieces = document+1, 0, 3+rand.IntN(20)
		}
		piece++
		name := fmt.Sprintf("manual-%s-%02d", run, document)
		unit, err := saveUnit(ctx, pool, fmt.Sprintf("%s/p%04d", name, piece), "importer", name, "nightly-"+run)
		if err != nil {
			return err
		}
		if err := discuss(ctx, pool, unit); err != nil {
			return err
		}
		if piece%5 == 0 {
			if _, err := saveUnit(ctx, pool, fmt.Sprintf("note/%s/%02d-%04d", run, document, piece), "user:ben", "", ""); err != nil {
				return err
			}
		}
		return nil
	})
}

func saveUnit(ctx context.Context, pool *pgxpool.Pool, address, actor, document, batch string) (unit string, err error) {
	err = pool.QueryRow(ctx, "SELECT public.fn_iu_save($1::text, 'What a piece of the demo says.', $2::text, $3::text, $4::text) ->> 'unit_id'", address, actor, document, batch).Scan(&unit)
	return unit, err
}

// discuss comments on an information unit now and then, or proposes a new text
// for it and applies that.
func discuss(ctx context.Context, pool *pgxpool.Pool, unit string) error {
	var err error
	switch rand.IntN(8) {
	case 0:
		_, err = pool.Exec(ctx, "SELECT public.fn_iu_comment($1::uuid, 'Is this still so?', 'user:anna')", unit)
	case 1:
		_, err = pool.Exec(ctx, "SELECT public.fn_iu_draft_apply((public.fn_iu_draft_create($1::uuid, 'What it says now.', 'user:ben') ->> 'draft_id')::uuid, 'user:anna')", unit)
	}
	return err
}
