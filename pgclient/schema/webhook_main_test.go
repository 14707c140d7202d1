// One private PostgreSQL server for all tests of this package.

package schema_test

import (
	"os"
	"testing"

	"github.com/qtop/qtop/pgclient/pgtest"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }
