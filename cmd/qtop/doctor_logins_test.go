package main

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/pgtest"
	"github.com/qtop/qtop/pgclient/schema"
)

// The doctor names settings that roles and the database give to sessions, and
// logins with more rights than their work needs.
func TestDoctorOnLogins(t *testing.T) {
	t.Parallel()
	const db = "postgres"
	s := pgtest.OwnInstalled(t, db, nil) // the doctor examines every login of the server
	_, exec := onServer(t, s, db)
	doctor := func(login string) (lines string, bad bool) {
		all, failed := examined(t, s.DSN(login, db))
		for _, f := range all {
			if f.State != "ok" && strings.Contains("read-only triggers path encoding isolation superuser wide login logins setting host rights roles members migrates", f.Check) {
				lines += f.State + " " + f.Check + ": " + f.Found.String() + " | " + f.Remedy + "\n"
				bad = bad || f.State == "bad"
			}
		}
		require.True(t, failed || !bad, "a bad line is a failure")
		return lines, bad
	}
	const login, viewer = "ann", "vic"
	exec("CREATE ROLE ann LOGIN IN ROLE workflow_admin, queue_viewer; CREATE ROLE vic LOGIN IN ROLE queue_viewer")
	before, bad := doctor(login)
	require.False(t, bad)

	type finds struct{ sql, says, remedy string }
	all := []finds{
		{"ALTER ROLE " + login + " SET default_transaction_read_only = on", "bad read-only: ROLE " + login + " sets default_transaction_read_only = on", "ALTER ROLE " + login + " RESET default_transaction_read_only"},
		{"ALTER ROLE " + login + " SET session_replication_role = replica", "bad triggers: ROLE " + login + " sets session_replication_role = replica", "ALTER ROLE " + login + " RESET session_replication_role"},
		{"ALTER ROLE " + login + " IN DATABASE " + db + " SET search_path = evil, public", "note path: ROLE " + login + " sets search_path = evil, public", "ALTER ROLE " + login + " IN DATABASE " + db + " RESET search_path"},
		{"ALTER DATABASE " + db + " SET client_encoding = LATIN1", "note encoding: DATABASE " + db + " sets client_encoding = ", "ALTER DATABASE " + db + " RESET client_encoding"},
		{"ALTER DATABASE " + db + " SET default_transaction_isolation = serializable", "note isolation: DATABASE " + db, "ALTER DATABASE " + db + " RESET default_transaction_isolation"},
		{"ALTER ROLE " + login + " SET statement_timeout = '2s'", "note setting: ROLE " + login + " sets statement_timeout = 2s: what takes longer is cut off", "ALTER ROLE " + login + " RESET statement_timeout"},
		{"ALTER DATABASE " + db + " SET lock_timeout = '0.5s'", "note setting: DATABASE " + db + " sets lock_timeout = 0.5s: a producer", "ALTER DATABASE " + db + " RESET lock_timeout"},
		{"ALTER DATABASE " + db + " SET idle_session_timeout = '10min'", "note setting: DATABASE " + db + " sets idle_session_timeout = 10min", "ALTER DATABASE " + db + " RESET idle_session_timeout"},
		{"ALTER DATABASE " + db + " SET plan_cache_mode = force_generic_plan", "note setting: DATABASE " + db + " sets plan_cache_mode", "ALTER DATABASE " + db + " RESET plan_cache_mode"},
		{"ALTER ROLE " + login + " SET enable_indexscan = off", "note setting: ROLE " + login + " sets enable_indexscan", "ALTER ROLE " + login + " RESET enable_indexscan"},
		{"ALTER ROLE " + login + " SET synchronous_commit = off", "note setting: ROLE " + login + " sets synchronous_commit", "ALTER ROLE " + login + " RESET synchronous_commit"},
		{"ALTER ROLE " + login + " SET enable_sort = f", "note setting: ROLE " + login + " sets enable_sort = f: plans", "ALTER ROLE " + login + " RESET enable_sort"},
		{"ALTER SYSTEM SET log_statement = 'mod'", "", ""},
		{"SELECT pg_reload_conf()", "note setting: the configuration of the server sets log_statement = mod: payloads", "set it back in the configuration"},
		{"ALTER ROLE " + login + " CREATEROLE BYPASSRLS", "note wide login: " + login + " has CREATEROLE, BYPASSRLS", "ALTER ROLE " + login + " NOCREATEROLE NOBYPASSRLS"},
		{"CREATE ROLE old LOGIN IN ROLE router_worker", "note members: router_worker: old", `REVOKE "router_worker" FROM "old"`},
		{`CREATE ROLE "app-host" LOGIN IN ROLE lease_reset_cleaner`, "note members: lease_reset_cleaner: app-host", `REVOKE "lease_reset_cleaner" FROM "app-host"`},
		{"GRANT webhook_worker TO " + login, "note wide login: " + login + " works (webhook_worker) and administers (workflow_admin)", "a separate login"},
		{"GRANT queue_owner TO " + login, "note wide login: " + login + " is a member of queue_owner", "REVOKE queue_owner"},
	}
	lines, owner := "", len(all)-1 // a member of queue_owner has that line instead of the one before
	for _, group := range [][]finds{all[:owner], all[owner:]} {
		for _, c := range group {
			require.True(t, c.says == "" || !strings.Contains(before, c.says), c.sql)
			exec(c.sql)
		}
		require.Eventually(t, func() bool { // the server needs a moment to read its configuration again
			lines, _ = doctor(login)
			return strings.Contains(lines, "log_statement")
		}, patience, 10*time.Millisecond)
		for _, c := range group {
			require.Contains(t, lines, c.says, c.sql)
			require.Contains(t, lines, c.remedy, c.sql)
		}
	}
	exec("CREATE ROLE owen LOGIN CREATEROLE BYPASSRLS; CREATE ROLE olga LOGIN CREATEROLE; ALTER DATABASE " + db + " OWNER TO owen; GRANT owen TO olga; GRANT queue_owner TO owen")
	lines, _ = doctor("owen")
	require.Contains(t, lines, "note wide login: owen has BYPASSRLS, which", "migrate up needs CREATEROLE")
	require.NotContains(t, lines, "owen is a member of queue_owner")
	require.NotContains(t, lines, "olga has", "a member of the owner migrates too")
	require.Contains(t, lines, "note wide login: "+login+" is a member of queue_owner")
	require.NotContains(t, lines, "note migrates", "olga is a member of queue_owner by owen")
	exec("CREATE ROLE otto LOGIN; ALTER DATABASE " + db + " OWNER TO otto") // as where a superuser ran migrate up
	lines, _ = doctor("otto")
	require.Contains(t, lines, "note migrates: otto owns the database, but may not run qtop migrate: it cannot act as queue_owner | GRANT queue_owner TO otto")
	exec("GRANT queue_owner TO otto")
	lines, _ = doctor("otto")
	require.NotContains(t, lines, "note migrates")
	exec("ALTER DATABASE " + db + " OWNER TO owen")
	exec(`CREATE ROLE "user"; CREATE ROLE "Odd-One" LOGIN CREATEROLE IN ROLE queue_viewer, "user"; GRANT "user" TO queue_viewer; ALTER ROLE "Odd-One" SET statement_timeout = '2s';
		ALTER ROLE "Odd-One" IN DATABASE ` + db + ` SET search_path = evil`)
	lines, _ = doctor("Odd-One")
	for _, remedy := range []string{
		`ALTER ROLE "Odd-One" RESET statement_timeout`, `ALTER ROLE "Odd-One" IN DATABASE ` + db + ` RESET search_path`, `ALTER ROLE "Odd-One" NOCREATEROLE`,
		` TO "Odd-One", if a host connects with it`, `REVOKE "user" FROM queue_viewer`,
	} {
		require.Contains(t, lines, remedy)
	}
	exec("ALTER ROLE " + viewer + " SET default_transaction_read_only = on")
	lines, _ = doctor(viewer)
	require.Contains(t, lines, "note read-only: ROLE "+viewer+" sets", "who only looks may be read-only")
	exec("ALTER ROLE " + login + " SET default_transaction_read_only = off; ALTER DATABASE " + db + " SET default_transaction_read_only = on")
	lines, _ = doctor(login)
	require.Contains(t, lines, "note read-only: DATABASE "+db+" sets default_transaction_read_only = on: nothing can be changed, except where a stronger setting is off", "this login may write")
	exec("ALTER ROLE " + login + " RESET default_transaction_read_only")
	lines, _ = doctor(login)
	require.Contains(t, lines, "bad read-only: DATABASE "+db+" sets default_transaction_read_only = on: nothing can be changed |")
	exec("SET default_transaction_read_only = off; ALTER DATABASE " + db + " RESET default_transaction_read_only")
	exec("CREATE ROLE host LOGIN IN ROLE queue_viewer, dot_executor; ALTER ROLE host SET role = queue_viewer")
	lines, _ = doctor("host")
	require.Contains(t, lines, "note setting: ROLE host sets role = queue_viewer: what qtop and other programs of the login do has the rights of that role")
	runs := "a worker host with this login runs no loop: it lacks dot_executor, webhook_worker; it works with the rights of queue_viewer | "
	require.Contains(t, lines, runs+"GRANT webhook_worker TO host and ALTER ROLE host RESET role, if")
	require.Contains(t, lines, "note rights: without workflow_admin")
	require.Contains(t, lines, "GRANT workflow_admin TO queue_viewer, with whose rights the login works, or ALTER ROLE … RESET role if it has its own")
	exec("GRANT webhook_worker TO host")
	lines, _ = doctor("host")
	require.Contains(t, lines, runs+"ALTER ROLE host RESET role, if")
	exec("REVOKE dot_executor, webhook_worker FROM host")
	lines, _ = doctor("host")
	require.Contains(t, lines, runs+"GRANT dot_executor, webhook_worker TO queue_viewer, which gives it to all its members, if")
	lines, _ = doctor("postgres")
	if !pgtest.HostilePass() { // whose paths are further lines, so that this one is among those that are left out
		require.Contains(t, lines, "note superuser: this login is a superuser")
	}
	out, _ := qtop(t, s.DSN("postgres", db), "doctor", "--read-only", "-o", "json").Output()
	require.Contains(t, string(out), "not looked at: this session is read-only", "the partitions")
}

// In a database whose roles have a prefix the doctor names those: a GRANT of a role without it would
// give rights in another database of the server.
func TestDoctorNamesRolesWithTheirPrefix(t *testing.T) {
	t.Parallel()
	s := pgtest.OwnServer(t, nil)
	require.NoError(t, schema.Current().Up(t.Context(), s.DSN("postgres", "postgres"), schema.UpOptions{RolePrefix: "stg_"}))
	_, exec := onServer(t, s, "postgres")
	exec("CREATE ROLE vic LOGIN; CREATE ROLE ada LOGIN; CREATE ROLE backup; GRANT pg_read_all_data TO backup; GRANT backup, pg_write_all_data TO ada; GRANT stg_queue_viewer, stg_webhook_worker TO ada WITH ADMIN OPTION")
	bare := regexp.MustCompile(`\b(` + strings.Join(append(schema.Roles(), "queue_owner"), "|") + `)\b`)
	found, granted := "", ""
	for _, login := range []string{"vic", "postgres"} {
		all, _ := examined(t, s.DSN(login, "postgres"))
		for _, f := range all {
			require.NotRegexp(t, bare, f.Check+": "+f.Found.String()+" | "+f.Remedy)
			found += f.State + " " + f.Check + ": " + f.Found.String() + "\n"
			granted += f.Remedy + "\n"
		}
	}
	require.Contains(t, granted, "the login needs one of the roles stg_dead_letter_operator, stg_queue_viewer, stg_workflow_admin")
	require.Contains(t, granted, "ask with the role stg_queue_viewer")
	// logins that may do more than the roles of qtop let them, or hand those on
	require.Contains(t, found, "note wide login: ada is a member of pg_read_all_data, pg_write_all_data: the roles of qtop do not limit what it reads or changes\n")
	require.Contains(t, granted, "REVOKE pg_read_all_data, pg_write_all_data FROM ada, or from the group through which it has it\n")
	require.Contains(t, found, "note wide login: ada may give others stg_queue_viewer, stg_webhook_worker (ADMIN OPTION)\n")
	require.Contains(t, granted, "REVOKE ADMIN OPTION FOR stg_queue_viewer, stg_webhook_worker FROM ada, or")
}
