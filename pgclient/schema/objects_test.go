package schema_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/schema"
)

const objectsHead = `# What qtop makes in schema public, as PostgreSQL names it: what migrate down finds beside it is somebody else's, and what
# migrate up finds of it before it begins too. Partitions of the months and days are left out. Written by make docs.
`

const tablesHead = `# What the migrations make, in the words of PostgreSQL: kind, name and definition, divided by tabs. qtop doctor compares a
# database with it. It is the same on every major version. Written by make docs.
`

// tables.txt lists the tables that the migrations make; the text is the same on every major version
// of PostgreSQL.
func TestTablesOfTheRelease(t *testing.T) {
	c := newCore(t)
	lines, err := schema.Tables(t.Context(), c.db.Conn(t, ""))
	require.NoError(t, err)
	got := tablesHead + strings.Join(lines, "\n") + "\n"
	if *update {
		require.NoError(t, os.WriteFile("tables.txt", []byte(got), 0o644))
	}
	want, err := os.ReadFile("tables.txt")
	require.NoError(t, err)
	require.Equal(t, string(want), got, "tables.txt is not as the schema is: make docs")
}

// objects.txt lists the objects that migrate up installs.
func TestObjectsOfTheRelease(t *testing.T) {
	c := newCore(t)
	lines, err := schema.Objects(t.Context(), c.db.Conn(t, ""))
	require.NoError(t, err)
	got := objectsHead + strings.Join(lines, "\n") + "\n"
	if *update {
		require.NoError(t, os.WriteFile("objects.txt", []byte(got), 0o644))
	}
	want, err := os.ReadFile("objects.txt")
	require.NoError(t, err)
	require.Equal(t, string(want), got, "objects.txt is not as the schema is: make docs")
}

// migrate down finds the tables that it takes back by the text of the migrations.
func TestMigrationsDropTheirTables(t *testing.T) {
	files, err := filepath.Glob("migrations/*.sql")
	require.NoError(t, err)
	var sql strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		sql.Write(text)
	}
	list, err := os.ReadFile("tables.txt")
	require.NoError(t, err)
	tables := map[string]bool{}
	for line := range strings.Lines(string(list)) {
		if column, ok := strings.CutPrefix(line, "column\t"); ok {
			table, _, _ := strings.Cut(column, ".")
			tables[table] = true
		}
	}
	delete(tables, "qtop_schema_version") // made and dropped by migrate itself
	require.Greater(t, len(tables), 70)
	for table := range tables {
		require.Contains(t, sql.String(), "DROP TABLE public."+table+";")
	}
}
