package inspect

import (
	"context"

	"github.com/qtop/qtop/pgclient"
	"github.com/qtop/qtop/pgclient/pgerror"
	"github.com/qtop/qtop/pgclient/pgpool"
	"github.com/qtop/qtop/pgclient/schema"
)

// SchemaDifferences returns the objects of the database that differ from what this program
// would install.
func SchemaDifferences(ctx context.Context, c *pgclient.Client) ([]schema.Difference, error) {
	ctx, cancel := context.WithTimeout(ctx, pgpool.ReadTimeout)
	defer cancel()
	conn, err := c.Look().Acquire(ctx)
	if err != nil {
		return nil, pgerror.Translate(err)
	}
	defer conn.Release()
	d, err := schema.Differences(ctx, conn.Conn())
	return d, pgerror.Translate(err)
}

// MissingRows returns the rows that the code relies on and the database lacks. same = the database has the
// seeds of this program; without that, nothing is compared.
func MissingRows(ctx context.Context, c *pgclient.Client) (missing []schema.Missing, same bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, pgpool.ReadTimeout)
	defer cancel()
	conn, err := c.Look().Acquire(ctx)
	if err != nil {
		return nil, false, pgerror.Translate(err)
	}
	defer conn.Release()
	missing, same, err = schema.MissingRows(ctx, conn.Conn())
	return missing, same, pgerror.Translate(err)
}
