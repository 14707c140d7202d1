package schema_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/pgtest"
	"github.com/qtop/qtop/pgclient/schema"
)

// lastRelease is the commit of release 0.2.0.
const lastRelease = "b31bf33a285ee30d390a374dd2bad11b9edb7793"

// releaseOf loads the schema as it was in a commit; ok is false where the history does not reach it.
func releaseOf(t *testing.T, commit string) (r *schema.Release, ok bool) {
	t.Helper()
	archive, err := exec.CommandContext(t.Context(), "git", "archive", commit, ".").Output() // of this folder
	if err != nil {
		return nil, false
	}
	files := fstest.MapFS{}
	for in := tar.NewReader(bytes.NewReader(archive)); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		if h.Typeflag == tar.TypeReg {
			text, err := io.ReadAll(in)
			require.NoError(t, err)
			files[h.Name] = &fstest.MapFile{Data: text}
		}
	}
	if files["rows.txt"] == nil { // 0.2.0 has none
		files["rows.txt"] = &fstest.MapFile{}
	}
	r, err = schema.Load(files)
	require.NoError(t, err)
	return r, true
}

// offered lists what programs may use: per function its arguments with their defaults and its result, the columns of
// tables and views, and the rights of roles on each.
func offered(t *testing.T, conn *pgx.Conn) map[string]string {
	t.Helper()
	out := map[string]string{}
	rows, err := conn.Query(t.Context(), `
		WITH fn AS (SELECT p.oid, p.proname, p.proacl, p.proowner FROM pg_proc p WHERE `+publicFunctions+`),
		rel AS (SELECT c.oid, c.relname, c.relacl, c.relowner FROM pg_class c WHERE `+publicRelations+` AND c.relkind IN ('r', 'p', 'v') AND NOT c.relispartition)
		SELECT 'arguments of ' || fn.proname, pg_get_function_arguments(fn.oid) FROM fn WHERE cardinality(fn.proacl) > 1
		UNION ALL SELECT 'result of ' || fn.proname, pg_get_function_result(fn.oid) FROM fn WHERE cardinality(fn.proacl) > 1
		UNION ALL SELECT concat_ws(' ', a.privilege_type, 'on', fn.proname, 'for', a.grantee::regrole), '' FROM fn, aclexplode(fn.proacl) a WHERE a.grantee <> fn.proowner
		UNION ALL SELECT 'column ' || a.attname || ' of ' || rel.relname, format_type(a.atttypid, a.atttypmod) FROM rel
			JOIN pg_attribute a ON a.attrelid = rel.oid AND a.attnum > 0 AND NOT a.attisdropped
		UNION ALL SELECT concat_ws(' ', a.privilege_type, 'on', rel.relname, 'for', a.grantee::regrole), '' FROM rel, aclexplode(rel.relacl) a WHERE a.grantee <> rel.relowner
		UNION ALL SELECT concat_ws(' ', x.privilege_type, 'on', a.attname, 'of', rel.relname, 'for', x.grantee::regrole), '' FROM rel
			JOIN pg_attribute a ON a.attrelid = rel.oid, aclexplode(a.attacl) x`)
	require.NoError(t, err)
	var name, form string
	_, err = pgx.ForEachRow(rows, []any{&name, &form}, func() error {
		out[name] = form
		return nil
	})
	require.NoError(t, err)
	return out
}

// The upgrade of a database of release 0.2.0, with rows in the tables: before it, this program refuses the database in one
// line; after it, the schema is that of a fresh installation, every row is there, and everything that programs of 0.2.0
// call or read is still there, in a form that answers them. It makes two upgrades, because no other test goes from there.
func TestUpgradeOfTheLastRelease(t *testing.T) {
	t.Parallel()
	last, ok := releaseOf(t, lastRelease)
	if !ok {
		t.Skip("the history of the repository does not reach release 0.2.0, commit " + lastRelease)
	}
	frozen, err := os.ReadFile("released.txt")
	require.NoError(t, err)
	if strings.Contains(string(frozen), "\nrelease 0.2.0\n") {
		require.Contains(t, string(frozen), fmt.Sprintf("\ncode %d %s\n", last.Code, last.Hash))
	}
	old, fresh := pgtest.Released(t), pgtest.New(t)
	up(t, old, last)
	conn := old.Conn(t, "")
	columns := pgtest.Columns(t, conn)
	before, had := pgtest.RowSums(t, conn, columns), offered(t, conn)
	require.Greater(t, len(had), 2000)
	var workers []string
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT array_agg(worker_name) FROM public.queue_tick_worker").Scan(&workers))

	refusal := func() string {
		st, err := schema.GetStatus(t.Context(), conn)
		require.NoError(t, err)
		what, do := st.Refusal()
		return what + ": " + do
	}
	require.Equal(t, fmt.Sprintf("code %d is installed, this qtop needs code %d: run qtop migrate up", last.Code, schema.Current().Code), refusal())

	up(t, old, schema.Current())
	require.Equal(t, ": ", refusal())
	st, err := last.Status(t.Context(), conn)
	require.NoError(t, err)
	what, _ := st.Refusal()
	require.Empty(t, what, "programs of 0.2.0 go on working")
	require.Equal(t, before, withWorkers(t, conn, workers, columns), "no row was lost or changed")
	require.Equal(t, stable(t, fresh.Conn(t, "")), stable(t, conn))
	require.Empty(t, differences(t, conn))
	leases := func(conn *pgx.Conn) (names []string) {
		require.NoError(t, conn.QueryRow(t.Context(), "SELECT array_agg(lease_name ORDER BY lease_name) FROM public.dot_iu_runtime_lease").Scan(&names))
		return names
	}
	require.Equal(t, leases(fresh.Conn(t, "")), leases(conn), "without the row of a lease nobody waits")

	has := offered(t, conn)
	var broken []string
	for name, form := range had {
		if name == "arguments of fn_queue_health_rows" { // called only by the schema: v_queue_health and the snapshot
			continue
		}
		now, there := has[name]
		more, longer := strings.CutPrefix(now, form)
		if longer && strings.HasPrefix(name, "arguments of ") { // defaults serve callers of before
			if more != "" && form == "" {
				more = ", " + more
			}
			longer = strings.Count(more, ", ") == strings.Count(more, " DEFAULT ")
		} else {
			longer = now == form
		}
		if !there || !longer {
			broken = append(broken, fmt.Sprintf("%s: %s, now %s", name, form, now))
		}
	}
	require.Empty(t, broken)
}
