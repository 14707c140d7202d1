package main

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient"
	"github.com/qtop/qtop/pgclient/inspect"
	"github.com/qtop/qtop/pgclient/pgtest"
	"github.com/qtop/qtop/pgclient/queue"
)

// The doctor names limits of logins, of the database and of the server below what worker hosts and
// consoles need, passwords that end, and settings that write payloads into the log of the server.
func TestDoctorOnLimits(t *testing.T) {
	t.Parallel()
	const db = "postgres"
	s := pgtest.OwnInstalled(t, db, nil) // the doctor examines every login of the server
	_, exec := onServer(t, s, db)
	lines := func() string {
		all, _ := examined(t, s.DSN("postgres", db))
		return asLines(all)
	}
	require.Contains(t, lines(), "ok connections: ")
	exec(`CREATE ROLE "Host" LOGIN CONNECTION LIMIT 14 IN ROLE dot_executor; CREATE ROLE small LOGIN CONNECTION LIMIT 3 IN ROLE webhook_worker; CREATE ROLE ann LOGIN CONNECTION LIMIT 6 IN ROLE queue_viewer;
		CREATE ROLE app LOGIN CONNECTION LIMIT 1 IN ROLE event_ingest_writer; CREATE ROLE fits LOGIN CONNECTION LIMIT 15 IN ROLE webhook_worker;
		CREATE ROLE soon LOGIN VALID UNTIL '2020-01-01' IN ROLE event_ingest_writer; CREATE ROLE later LOGIN VALID UNTIL 'infinity' IN ROLE queue_viewer`)
	exec("DO $$ BEGIN EXECUTE format('ALTER ROLE fits VALID UNTIL %L', now() + interval '7 days'); END $$")
	exec("ALTER DATABASE " + db + " CONNECTION LIMIT 20")
	exec("ALTER DATABASE " + db + " SET log_min_duration_statement = '1s'")
	exec("ALTER ROLE ann SET log_min_duration_sample = -1")
	exec("ALTER ROLE ann SET log_parameter_max_length_on_error = '1kB'")
	found := lines()
	for _, says := range []string{
		`note connections: ROLE "Host" may have 14 connections at once: a worker host opens up to 15 | ALTER ROLE "Host" CONNECTION LIMIT -1, or at least 15 for each worker host that uses it`,
		`bad connections: ROLE small may have 3 connections at once: a worker host opens up to 15`,
		`note connections: ROLE ann may have 6 connections at once: a console opens up to 7 | ALTER ROLE ann CONNECTION LIMIT -1, or at least 7 for each console that uses it`,
		`note connections: DATABASE ` + db + ` accepts 20 connections at once: one worker host and one console open up to 22 | ALTER DATABASE ` + db + ` CONNECTION LIMIT -1, or a number that holds 15 for each worker host`,
		`note password: the password of soon ended 2020-01-01`, `note password: the password of fits ends 2`,
		`note setting: DATABASE ` + db + ` sets log_min_duration_statement = 1s: payloads appear in the log of the server, also those that producers bind, with each statement that takes so long | ` +
			`log_parameter_max_length = 0 in the configuration of the server, or ALTER DATABASE ` + db + ` RESET log_min_duration_statement`,
		`note setting: ROLE ann sets log_parameter_max_length_on_error = 1kB: payloads that producers bind appear in the log of the server where a statement fails | ALTER ROLE ann RESET log_parameter_max_length_on_error`,
	} {
		require.Contains(t, found, says)
	}
	require.NotRegexp(t, "(password of later|ROLE (app|fits) may|log_min_duration_sample)", found)
	exec("ALTER DATABASE " + db + " SET log_parameter_max_length = 0")
	require.NotContains(t, lines(), "log_min_duration_statement", "no parameter is logged")

	exec("ALTER DATABASE " + db + " RESET log_min_duration_statement")
	exec("ALTER DATABASE " + db + " SET log_statement = 'all'")
	lines()
	log, err := os.ReadFile(s.LogFile())
	require.NoError(t, err)
	require.Equal(t, 1, strings.Count(string(log), "CASE WHEN l.rolsuper THEN -1 ELSE l.rolconnlimit END"), "the logins are read once")
}

// The doctor counts the connections that pgclient.Open allows, and the listener of each client.
func TestDoctorCountsTheConnectionsOfAClient(t *testing.T) {
	t.Parallel()
	client, err := pgclient.Open(t.Context(), pgclient.Options{DSN: pgtest.New(t).DSN("postgres"), WorkConns: hostConns})
	require.NoError(t, err)
	defer client.Close()
	console := client.Look().Stat().MaxConns() + client.Read().Stat().MaxConns() + client.Act().Stat().MaxConns() + 1
	require.EqualValues(t, consoleMost, console)
	require.EqualValues(t, hostMost, console+client.Work().Stat().MaxConns())
}

// What the doctor says of the server's own limit, and of settings of the log.
func TestDoctorJudgesConnectionsAndLogs(t *testing.T) {
	said := func(server, used int) string {
		var b strings.Builder
		for _, f := range judgeConnections(inspect.ConnectionRoom{Database: queue.Clean("shop"), Limit: -1, Server: server, Used: used}, nil) {
			b.WriteString(f.State + " " + f.Found.String() + "\n")
		}
		return b.String()
	}
	require.Equal(t, "bad max_connections leaves 5 connections for all logins but superusers: one worker host and one console open up to 22\n", said(5, 1))
	require.Contains(t, said(21, 1), "note max_connections leaves 21")
	require.Equal(t, "note 83 of the 97 connections of the server are in use: one more worker host opens up to 15\n", said(97, 83))
	require.Contains(t, said(97, 82), "ok 82 of 97 in use")
	require.Equal(t, "note connections: not looked at: the pooler opens the connections of the server | run qtop doctor over a direct connection\n",
		asLines(connectionFindings(t.Context(), patient{session: queue.Session{Pooler: true}})))
	for setting, hurts := range map[string]bool{
		"log_min_duration_statement=-1": false, "log_min_duration_statement=0": true, "log_min_duration_statement=250ms": true, "auto_explain.log_min_duration=2s": true, "auto_explain.log_min_duration=-1": false,
		"log_min_duration_sample=100": true, "log_transaction_sample_rate=0": false, "log_transaction_sample_rate=0.01": true, "log_parameter_max_length_on_error=0": false, "log_parameter_max_length_on_error=0kb": false,
		"log_parameter_max_length_on_error=-1": true,
	} {
		name, value, _ := strings.Cut(setting, "=")
		require.Equal(t, hurts, settingHurts(name, value) != "", setting)
	}
	require.Contains(t, settingFinding(inspect.LoginSetting{Name: "auto_explain.log_min_duration", Value: queue.Clean("0"), Server: true}, false, false).Remedy, "auto_explain.log_parameter_max_length = 0")
}
