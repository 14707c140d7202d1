package main

// Runs the scripts of testdata/script, each with a separate database and three
// logins.

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/qtop/qtop/pgclient/pgsession"
	"github.com/qtop/qtop/pgclient/pgtest"
	"github.com/qtop/qtop/pgclient/queue"
)

// dial opens a connection of a superuser for the commands of a script.
func dial(ts *testscript.TestScript) *pgx.Conn {
	conn, err := pgsession.Connect(context.Background(), ts.Getenv("SUPER"))
	ts.Check(err)
	ts.Defer(func() { _ = conn.Close(context.Background()) })
	return conn
}

func TestScripts(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("PATH", built+string(os.PathListSeparator)+env.Getenv("PATH"))
			db := pgtest.New(t)
			empty := pgtest.Empty(t)
			env.Setenv("QTOP_DSN", db.DSN(operator(t, db)))
			env.Setenv("VIEWER", db.DSN(pgtest.Login(t, db, "queue_viewer")))
			env.Setenv("NOBODY", db.DSN(pgtest.Login(t, db)))
			env.Setenv("HOST", db.DSN(pgtest.Login(t, db, "dot_executor", "queue_viewer")))
			env.Setenv("WRITER", db.DSN(pgtest.Login(t, db, "event_ingest_writer")))
			env.Setenv("SUPER", db.DSN(""))
			env.Setenv("DBNAME", db.Name)
			env.Setenv("EMPTY", empty.DSN(""))
			env.Setenv("EMPTYNAME", empty.Name)
			env.Setenv("QTOP_ACTOR", "anna")
			env.Setenv("LONG", strings.Repeat("x", 1000))
			env.Setenv("TWOLINES", "order.held\norder.back")
			env.Setenv("LATIN1", "Empf\xe4nger")
			env.Setenv("HOME", env.WorkDir)
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			// sql STATEMENT: runs it as the superuser.
			"sql": func(ts *testscript.TestScript, neg bool, args []string) {
				_, err := dial(ts).Exec(context.Background(), args[0])
				if neg != (err != nil) {
					ts.Fatalf("sql: %v", err)
				}
			},
			// deadletters N CODE: makes dead letters through the state machine.
			"deadletters": func(ts *testscript.TestScript, _ bool, args []string) {
				n, err := strconv.Atoi(args[0])
				ts.Check(err)
				ts.Check(deadLetters(context.Background(), dial(ts), n, args[1]))
			},
			// jobdeadletters N KIND DOMAIN: makes dead letters of jobs through the
			// state machine.
			"jobdeadletters": func(ts *testscript.TestScript, _ bool, args []string) {
				n, err := strconv.Atoi(args[0])
				ts.Check(err)
				ts.Check(deadJobs(context.Background(), dial(ts), n, args[1], args[2]))
			},
			// everylist: exports each list with a login that may only read.
			"everylist": func(ts *testscript.TestScript, _ bool, _ []string) {
				for _, l := range queue.ExportLists() {
					if l.Of == "" || l.Optional {
						ts.Check(ts.Exec("qtop", "--dsn", ts.Getenv("VIEWER"), "export", l.Name, l.Name+".json"))
					}
				}
			},
			// value NAME SQL: sets an environment variable to the single value
			// of a query.
			"value": func(ts *testscript.TestScript, _ bool, args []string) {
				var got string
				ts.Check(dial(ts).QueryRow(context.Background(), fmt.Sprintf("SELECT (%s)::text", args[1])).Scan(&got))
				ts.Setenv(args[0], got)
			},
			// code N COMMAND: requires that the command ends with this exit
			// code.
			"code": func(ts *testscript.TestScript, _ bool, args []string) {
				err := ts.Exec(args[1], args[2:]...)
				var ee *exec.ExitError
				if !errors.As(err, &ee) || strconv.Itoa(ee.ExitCode()) != args[0] {
					ts.Fatalf("it ends with %v, not exit code %s", err, args[0])
				}
			},
			// expect SQL WANT: requires this single value of a query.
			"expect": func(ts *testscript.TestScript, _ bool, args []string) {
				var got string
				ts.Check(dial(ts).QueryRow(context.Background(), fmt.Sprintf("SELECT (%s)::text", args[0])).Scan(&got))
				if got != args[1] {
					ts.Fatalf("%s is %q, want %q", args[0], got, args[1])
				}
			},
		},
	})
}
