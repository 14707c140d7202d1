package schema_test

import (
	"os"
	"testing"

	"github.com/qtop/qtop/pgclient/schema"
)

// BenchmarkLoad measures the time that a program needs once, when it first asks for the schema that
// it contains.
func BenchmarkLoad(b *testing.B) {
	for b.Loop() {
		if _, err := schema.Load(os.DirFS(".")); err != nil {
			b.Fatal(err)
		}
	}
}
