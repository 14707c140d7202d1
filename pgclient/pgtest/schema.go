// The only place where the cluster of the tests uses the schema of qtop.

package pgtest

import (
	"context"

	"github.com/qtop/qtop/pgclient/schema"
)

func schemaUp(ctx context.Context, dsn string, progress func(string)) error {
	return schema.Current().Up(ctx, dsn, schema.UpOptions{Progress: progress, AdoptRoles: true}) // a given server may have the roles of an earlier run
}

func schemaHash() string { return schema.Hash() }
