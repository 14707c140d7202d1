// The only file through which the tests' cluster uses qtop's schema.

package pgtest

import (
	"context"

	"github.com/qtop/qtop/pgclient/schema"
)

func schemaUp(ctx context.Context, dsn string, progress func(string)) error {
	return schema.Current().Up(ctx, dsn, schema.UpOptions{Progress: progress, AdoptRoles: true}) // a server named by QTOP_TEST_DSN may have the roles of an earlier run
}

func schemaHash() string { return schema.Hash() }
