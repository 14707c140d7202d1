package demo

import (
	"os"
	"testing"

	"github.com/qtop/qtop/pgclient/pgtest"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }
