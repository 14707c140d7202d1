package pgscan

// This file lets pgx scan text columns straight into queue.Text: nothing from a
// row becomes a string that could reach a terminal.

import (
	"database/sql"
	"fmt"

	"github.com/qtop/qtop/pgclient/queue"
)

type target struct{ to *queue.Text }

// Text scans a nullable text column; NULL is the empty Text.
func Text(t *queue.Text) sql.Scanner { return &target{t} }

// Scan implements sql.Scanner, which pgx honours.
func (s *target) Scan(src any) error {
	switch v := src.(type) {
	case nil:
		*s.to = queue.Text{}
	case string:
		*s.to = queue.Clean(v)
	case []byte:
		*s.to = queue.Clean(string(v))
	default:
		return fmt.Errorf("pgscan: cannot read %T as text", src)
	}
	return nil
}
