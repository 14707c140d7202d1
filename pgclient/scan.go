package pgclient

// This file lets pgx scan text columns straight into queue.Text: nothing from a
// row becomes a string that could reach a terminal.

import (
	"fmt"

	"github.com/qtop/qtop/pgclient/queue"
)

type textScan struct{ to *queue.Text }

// textInto scans a nullable text column; NULL is the empty Text.
func textInto(t *queue.Text) *textScan { return &textScan{t} }

// Scan implements sql.Scanner, which pgx honours.
func (s *textScan) Scan(src any) error {
	switch v := src.(type) {
	case nil:
		*s.to = queue.Text{}
	case string:
		*s.to = queue.Clean(v)
	case []byte:
		*s.to = queue.Clean(string(v))
	default:
		return fmt.Errorf("pgclient: cannot read %T as text", src)
	}
	return nil
}
