// The one tie of the tests' cluster to the schema of qtop.

package pgtest

import (
	"context"

	"github.com/qtop/qtop/pgclient/schema"
)

func schemaUp(ctx context.Context, dsn string, progress func(string)) error {
	return schema.Up(ctx, dsn, progress)
}

func schemaHash() string { return schema.Hash() }
