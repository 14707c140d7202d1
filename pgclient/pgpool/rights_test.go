package pgpool

import (
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/pgsession"
	"github.com/qtop/qtop/pgclient/pgtest"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// A host that lacks a right is refused at each pass. The pool asks the catalogue for the role to grant
// once a minute for each object, also when many callers are refused at once.
func TestAMissingRightIsAskedOnceAMinute(t *testing.T) {
	db := pgtest.Empty(t)
	root := db.Conn(t, "")
	login, one, other := pgtest.Login(t, db), pgtest.Login(t, db), pgtest.Login(t, db)
	exec := func(sql string) {
		t.Helper()
		_, err := root.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	for _, f := range []string{"f", "g"} {
		exec("CREATE FUNCTION public." + f + "() RETURNS int LANGUAGE sql AS 'SELECT 1'; REVOKE ALL ON FUNCTION public." + f + "() FROM PUBLIC; GRANT EXECUTE ON FUNCTION public." + f + "() TO " + one)
	}
	cfg, err := pgsession.PoolConfig(db.DSN(login))
	require.NoError(t, err)
	p, err := New(t.Context(), cfg, &pgsession.Route{}, false, 0)
	require.NoError(t, err)
	t.Cleanup(p.Close)
	refused := func(f string) string {
		_, err := p.Exec(t.Context(), "SELECT public."+f+"()")
		if err == nil {
			return ""
		}
		return err.Error()
	}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() { refused("f") })
	}
	all.Wait()
	require.Contains(t, refused("f"), "login "+login+" lacks a right: permission denied for function f")
	require.Contains(t, refused("f"), "needs the role "+one)
	exec("GRANT EXECUTE ON FUNCTION public.f(), public.g() TO " + other)
	require.NotContains(t, refused("f"), other, "the answer is remembered")
	require.Contains(t, refused("g"), other, "per object")
	p.lacked["f"].until = time.Now()
	require.Contains(t, refused("f"), other, "for a minute")
	require.Len(t, p.lacked, 2)
	exec("GRANT EXECUTE ON FUNCTION public.f() TO " + login)
	require.Empty(t, refused("f"), "a right that was granted meanwhile holds at once")
}

// Where a login works with the rights of another role, a GRANT to the login would have no effect.
func TestAMissingRightOfTheRoleInForce(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	root := db.Conn(t, "")
	group, app := pgtest.Login(t, db), pgtest.Login(t, db)
	plain, member := pgtest.Login(t, db, app), pgtest.Login(t, db, app, group)
	for _, sql := range []string{
		"CREATE FUNCTION public.f() RETURNS int LANGUAGE sql AS 'SELECT 1'", "REVOKE ALL ON FUNCTION public.f() FROM PUBLIC", "GRANT EXECUTE ON FUNCTION public.f() TO " + group,
		"ALTER ROLE " + plain + " SET role = " + app, "ALTER ROLE " + member + " SET role = " + app,
	} {
		_, err := root.Exec(t.Context(), sql)
		require.NoError(t, err, sql)
	}
	for _, x := range [][2]string{
		{member, "the login has that right, but works with those of another role: ALTER ROLE " + member + " RESET role"},
		{plain, "the role " + app + ", with whose rights the login works, needs the role " + group + "; as the login that ran migrate up: GRANT " + group + " TO " + app + ", which gives it to all its members"},
	} {
		login, says := x[0], x[1]
		cfg, err := pgsession.PoolConfig(db.DSN(login))
		require.NoError(t, err)
		p, err := New(t.Context(), cfg, &pgsession.Route{}, false, 0)
		require.NoError(t, err)
		t.Cleanup(p.Close)
		call := func(sql string) error {
			_, err := p.Exec(t.Context(), sql)
			return err
		}
		require.ErrorContains(t, call("SELECT public.f()"), "login "+login+" lacks a right: ")
		require.ErrorContains(t, call("SELECT public.f()"), says)
		_, remedy, _ := strings.Cut(says, ": ")
		remedy, _, _ = strings.Cut(remedy, ",")
		_, err = root.Exec(t.Context(), remedy)
		require.NoError(t, err, remedy)
		p.Reset()
		require.NoError(t, call("SELECT public.f()"), "after %s", remedy)
	}
}
