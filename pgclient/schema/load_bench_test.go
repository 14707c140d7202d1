package schema_test

import (
	"os"
	"testing"

	"github.com/qtop/qtop/pgclient/schema"
)

// What a program pays once, when it first asks which schema it carries.
func BenchmarkLoad(b *testing.B) {
	for b.Loop() {
		if _, err := schema.Load(os.DirFS(".")); err != nil {
			b.Fatal(err)
		}
	}
}
