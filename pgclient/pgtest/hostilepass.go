// The hostile pass: with QTOP_TEST_HOSTILE=1, every server and database of the tests has the
// doubles of hostile.go, and every login has the search_path that finds the doubles first. The
// tests are the same; if a double is called, the package fails. qtop's own functions have no
// doubles here, because calls in tests need not give arguments of the exact types.

package pgtest

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/qtop/qtop/pgclient/embedded"
	"github.com/qtop/qtop/pgclient/pgsession"
)

// HostilePass reports whether every database of this run is a hostile one.
func HostilePass() bool {
	return os.Getenv("QTOP_TEST_HOSTILE") != "" && os.Getenv("QTOP_TEST_DSN") == ""
}

// NotHostile skips a test in the hostile pass, and logs why.
func NotHostile(t testing.TB, why string) {
	t.Helper()
	if HostilePass() {
		t.Skip("hostile world: " + why)
	}
}

// hostileParams make the server log where a double was called from.
func hostileParams(params map[string]string) map[string]string {
	if !HostilePass() {
		return params
	}
	out := map[string]string{"log_line_prefix": "%m [%p] %u %a "}
	for name, value := range params {
		out[name] = value
	}
	return out
}

// hostileHash returns a hash of everything from which the doubles are made.
func hostileHash() (string, error) {
	all, err := words()
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256([]byte(strings.Join(all, " ") + hostileSQL + hostileGo))
	return hex.EncodeToString(sum[:6]), nil
}

// plantServer makes the doubles of hostile.go in the databases of a server on which qtop is not
// installed yet. template1 is one of them, so every database that is made later has the doubles
// too. It gives every login the search_path that finds the doubles first.
func plantServer(ctx context.Context, s *embedded.Server) error {
	for _, database := range []string{"template1", "postgres"} {
		conn, err := pgsession.Connect(ctx, s.DSN(embedded.Superuser, database))
		if err != nil {
			return err
		}
		if err := errors.Join(plant(ctx, conn), conn.Close(ctx)); err != nil {
			return err
		}
	}
	conn, err := pgsession.Connect(ctx, s.DSN(embedded.Superuser, "postgres"))
	if err != nil {
		return err
	}
	return errors.Join(run(ctx, conn, "ALTER ROLE ALL SET search_path = "+hostilePath), conn.Close(ctx))
}

// shadowTables makes doubles of qtop's tables, in the hostile pass only.
func shadowTables(ctx context.Context, dsn string) error {
	if !HostilePass() {
		return nil
	}
	conn, err := pgsession.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	return errors.Join(plantRelations(ctx, conn), conn.Close(ctx))
}

// called returns an error that lists the doubles that were called according to a log, each once
// with its first caller; nil if none was called. names maps a database to its test.
func called(log string, names func(database string) string) error {
	var all []error
	for _, what := range calls(log, "") {
		database, double, _ := strings.Cut(what, ": ")
		if slices.ContainsFunc(all, func(err error) bool { return strings.HasPrefix(err.Error(), double+", called ") }) {
			continue
		}
		_, rest, _ := strings.Cut(log, "LOG:  "+hostileMark+database+" "+double+"\n")
		var place []string
		for line := range strings.SplitSeq(rest, "\n") {
			if strings.Contains(line, "LOG:  ") || strings.Contains(line, "ERROR:  ") || len(place) == 12 {
				break
			}
			place = append(place, line)
		}
		all = append(all, fmt.Errorf("%s, called in %s\n%s", double, cmp.Or(names(database), database), strings.Join(place, "\n")))
	}
	if len(all) == 0 {
		return nil
	}
	return fmt.Errorf("the hostile world: %d foreign objects were called:\n%w", len(all), errors.Join(all...))
}

// calledOn checks the log of a server for calls of doubles, in the hostile pass only.
func calledOn(s *embedded.Server, names func(database string) string) error {
	if s == nil || !HostilePass() {
		return nil
	}
	log, err := os.ReadFile(s.LogFile())
	if err != nil {
		return fmt.Errorf("the hostile world: %w", err)
	}
	return called(string(log), names)
}
