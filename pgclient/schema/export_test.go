package schema

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// LookAtBlocker looks once, over second, which session blocks pid; it returns "" if none does.
func LookAtBlocker(ctx context.Context, second *pgx.Conn, pid uint32) string {
	w := &blockerWatch{}
	w.look(ctx, second, pid)
	return w.who
}
