package pgerror_test

import (
	"bufio"
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/pgerror"
	"github.com/qtop/qtop/pgclient/queue"
)

// The table has each class of PostgreSQL's appendix A once, with a reason.
func TestEveryStateIsClassedOnce(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, f := range pgerror.StateFates() {
		require.Regexp(t, `^([0-9A-Z]{2}|[0-9A-Z]{5})$`, f.State)
		require.False(t, seen[f.State], "%s stands twice", f.State)
		require.NotEmpty(t, f.Why, f.State)
		seen[f.State] = true
	}
	for f := range seen {
		require.True(t, seen[f[:2]], "%s has no class", f)
	}
	for _, class := range strings.Fields(`00 01 02 03 08 09 0A 0B 0F 0L 0P 0Z 10 20 21 22 23 24 25 26 27 28 2B 2D 2F 34 38 39 3B
		3D 3F 40 42 44 53 54 55 57 58 72 F0 HV P0 XX`) {
		require.True(t, seen[class], "class %s is missing", class)
	}
	code := regexp.MustCompile(`^([0-9A-Z]{2})[0-9A-Z]{3} `)
	files, _ := filepath.Glob("/usr/share/postgresql/*/errcodes.txt") // of the PostgreSQL servers that are installed here
	for _, name := range files {
		file, err := os.Open(name)
		require.NoError(t, err)
		for lines := bufio.NewScanner(file); lines.Scan(); {
			if m := code.FindStringSubmatch(lines.Text()); m != nil {
				require.True(t, seen[m[1]], "%s of %s is not classed", lines.Text(), name)
			}
		}
		require.NoError(t, file.Close())
	}
}

func TestFateOf(t *testing.T) {
	t.Parallel()
	fates := map[pgerror.Fate]string{
		pgerror.Again: "53100 53200 53300 53400 57014 57P01 57P02 57P03 57P05 40001 40P01 55P03 08006 08P01 25006 25P03 58030 26000",
		pgerror.GiveBack: "42501 42883 42P01 42703 28000 28P01 3D000 0A000 P0001 XX000 XX001 25P02 55000 ZZ000 " +
			"P0004 42725",
		pgerror.GiveUp: "22021 22P05 22023 23514 23505 44000 54000",
	}
	for fate, codes := range fates {
		for _, code := range strings.Fields(codes) {
			got, _ := pgerror.FateOf(pgerror.Translate(&pgconn.PgError{Code: code, Message: "x"}))
			require.Equal(t, fate.String(), got.String(), code)
		}
	}
	for code, smaller := range map[string]bool{"57014": true, "53200": true, "40001": false, "53100": false, "54000": true} {
		_, got := pgerror.FateOf(&pgconn.PgError{Code: code})
		require.Equal(t, smaller, got, code)
	}
	// a login that is refused, a database that is gone or closed, a setting that no session takes: nothing of a statement
	for _, code := range strings.Fields("28000 28P01 3D000 42501 42704 22023 54000 55000 0A000 P0001 08P01 57P01 57P03 53300") {
		for _, pg := range []*pgconn.PgError{{SeverityUnlocalized: "FATAL", Severity: "FATAL"}, {Severity: "FATAL"}, {SeverityUnlocalized: "PANIC"}} {
			pg.Code = code
			fate, _ := pgerror.FateOf(pgerror.Translate(pg))
			require.Equal(t, pgerror.Again.String(), fate.String(), code)
		}
	}
	_, smaller := pgerror.FateOf(&pgconn.PgError{SeverityUnlocalized: "FATAL", Code: "25P04"})
	require.True(t, smaller, "transaction_timeout ends the session of a statement that took too long")
	for severity, want := range map[string]pgerror.Fate{"FATAL": pgerror.Again, "PANIC": pgerror.Again, "ERROR": pgerror.GiveBack} {
		err := pgerror.Translate(&pgconn.PgError{SeverityUnlocalized: severity, Code: "XX000", Message: "could not write init file"})
		fate, _ := pgerror.FateOf(err)
		require.Equal(t, want.String(), fate.String(), severity)
		require.Equal(t, want == pgerror.Again, queue.KindOf(err) == queue.KindUnavailable, severity)
	}
	for severity, want := range map[string]pgerror.Fate{"FATAL": pgerror.Again, "ERROR": pgerror.GiveBack} { // no session began; a statement failed
		err := pgerror.Translate(&pgconn.PgError{SeverityUnlocalized: severity, Code: "55000", Message: `database "app" is not currently accepting connections`})
		fate, _ := pgerror.FateOf(err)
		require.Equal(t, want.String(), fate.String(), severity)
		require.Equal(t, want == pgerror.Again, queue.KindOf(err) == queue.KindUnavailable, severity)
	}
	invalid := &pgconn.PgError{SeverityUnlocalized: "FATAL", Code: "55000", Message: `cannot connect to invalid database "app"`, Hint: "Use DROP DATABASE to drop invalid databases."}
	require.ErrorContains(t, pgerror.Translate(invalid), invalid.Hint)
	fate, _ := pgerror.FateOf(context.DeadlineExceeded)
	require.Equal(t, pgerror.Again, fate)
	fate, _ = pgerror.FateOf(errors.New("other"))
	require.Equal(t, pgerror.GiveBack, fate)
}

// Only an error of the statement itself proves that the server rolled it back.
func TestMayHaveCommitted(t *testing.T) {
	t.Parallel()
	of := func(severity, code string) error {
		return pgerror.Translate(&pgconn.PgError{SeverityUnlocalized: severity, Code: code, Message: "m"})
	}
	for _, err := range []error{nil, of("ERROR", "42501"), of("ERROR", "57014"), of("ERROR", "40001"), of("ERROR", "P0001")} {
		require.False(t, pgerror.MayHaveCommitted(err), "%v", err)
	}
	for _, err := range []error{
		of("FATAL", "57P01"), of("FATAL", "08P01"), of("ERROR", "08006"), of("ERROR", "40003"), of("PANIC", "XX000"),
		pgerror.Translate(context.DeadlineExceeded), errors.New("unexpected EOF"),
	} {
		require.True(t, pgerror.MayHaveCommitted(err), "%v", err)
	}
}

// A server that lets nobody in from this address answers with the code of a wrong login: the remedy is
// on the server, not in the connection string.
func TestTheRemedyOfARefusedAddressIsOnTheServer(t *testing.T) {
	t.Parallel()
	refused := pgerror.Translate(&pgconn.PgError{Code: "28000", Message: `no pg_hba.conf entry for host "192.0.2.2", user "anna", database "app", no encryption`})
	require.ErrorContains(t, refused, "pg_hba.conf of the server must let this login")
	require.ErrorContains(t, pgerror.Translate(&pgconn.PgError{Code: "28000", Message: `role "anna" is not permitted to log in`}), "check user")
}

// The server says the same of a wrong password and of none; what to do differs.
func TestNoPasswordWasGiven(t *testing.T) {
	t.Parallel()
	for password, do := range map[string]string{"": "no password was given", "wrong": "check user, database and password"} {
		err := pgerror.Translate(errors.Join(
			&pgconn.ConnectError{Config: &pgconn.Config{Password: password}},
			&pgconn.PgError{Code: "28P01", Message: `password authentication failed for user "anna"`}))
		var e *queue.Error
		require.ErrorAs(t, err, &e)
		require.Equal(t, queue.KindUnavailable, e.Kind)
		require.Equal(t, `password authentication failed for user "anna"`, e.What.String())
		require.Contains(t, e.Do.String(), do)
	}
}

// A parameter that the server refuses when a session begins, such as that of another program in a
// DATABASE_URL that it shares, is a mistake of the configuration; the code means something else in a
// statement.
func TestUnknownParameterOfTheConnection(t *testing.T) {
	t.Parallel()
	for code, want := range map[string]struct {
		message, do string
		alone       queue.Kind
	}{
		"42704": {`unrecognized configuration parameter "schema"`, "take it out of them: other programs", queue.KindFailed},
		"22023": {`invalid value for parameter "work_mem": "lots"`, "correct it there, or take it out", queue.KindUsage},
		"42601": {"-c work_mem requires a value", "correct it there, or take it out", queue.KindFailed},
	} {
		pg := &pgconn.PgError{Code: code, Message: want.message}
		err := pgerror.Translate(errors.Join(&pgconn.ConnectError{Config: &pgconn.Config{}}, pg))
		require.Equal(t, queue.KindConfig, queue.KindOf(err))
		require.ErrorContains(t, err, want.message+" (connection string, DATABASE_URL, PGOPTIONS or service file): "+want.do)
		require.Equal(t, want.alone, queue.KindOf(pgerror.Translate(pg)))
	}
}
