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
