// Package pgerror turns errors of pgx and the server into one clear line with a kind and a remedy.
// Start with [Translate] and [Connect]; [FateOf] says what a worker host does after an error.
package pgerror

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"regexp"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/pgclient/queue/secrecy"
)

// Connect explains an invalid DSN or a failed connection; the message contains no secret.
func Connect(err error) error {
	if err == nil {
		return nil
	}
	var parse *pgconn.ParseConfigError
	if errors.As(err, &parse) {
		if file := (*fs.PathError)(nil); errors.As(err, &file) && plainPath.MatchString(file.Path) {
			return queue.NewError(queue.KindConfig, Mask(fmt.Sprintf("a file of the connection string cannot be read: %s: %s", file.Path, queue.Said(file.Err))), "dsn",
				"check the path, and that the user who runs qtop may read the file and open its folders").Because(err)
		}
		if at := wholeNumber.FindStringSubmatch(withoutDSN(parse.Error())); at != nil {
			if at[1] == "connect_timeout" {
				return queue.NewError(queue.KindConfig, "connect_timeout is not a whole number of seconds", "dsn or PGCONNECT_TIMEOUT", "write 5, without a unit").Because(err)
			}
			return queue.NewError(queue.KindConfig, at[1]+" is not a whole number", "dsn", "write 512, or leave it out").Because(err)
		}
		return queue.NewError(queue.KindConfig, "the connection string cannot be read: "+Mask(withoutValues(withoutDSN(parse.Error()))), "dsn",
			"correct it in QTOP_DSN, DATABASE_URL, --dsn, the profile, or the PG* variables").Because(err)
	}
	return Translate(err)
}

// withoutDSN removes the DSN that pgconn quotes in backquotes, because pgconn's own masking does
// not know every form of a password.
func withoutDSN(msg string) string {
	if i := strings.LastIndex(msg, "`: "); i >= 0 {
		return msg[i+3:]
	}
	return msg
}

var secretInDSN = regexp.MustCompile(`(?i)(password\s*=\s*)('(?:[^'\\]|\\.)*'?|(?:\\.|\S)+)|(://[^:/@\s]*:)\S*@`)

// quotedValue matches a quoted value in a parser's message, and the text after an invalid escape.
var quotedValue = regexp.MustCompile(`\\?"(?:[^"\\]|\\.)*\\?"|:[^\s()]*@\S*`)

// withoutValues removes the values that a parser's message quotes: text that the parser took for a
// port may be the end of a password.
func withoutValues(msg string) string {
	msg = quotedValue.ReplaceAllString(msg, "a value")
	if at := repeated.FindStringSubmatchIndex(msg); at != nil && !plainValue.MatchString(msg[at[2]:]) {
		head := msg[:at[2]] + "not shown"
		return head + strings.Repeat(")", max(strings.Count(head, "(")-strings.Count(head, ")"), 0))
	}
	return msg
}

var (
	// wholeNumber matches what the driver says of a parameter that must be a whole number.
	wholeNumber = regexp.MustCompile(`^(?:invalid|cannot parse) (connect_timeout|statement_cache_capacity|description_cache_capacity) \(`)
	// repeated matches the place in a parser's message where a value follows without quotes.
	repeated   = regexp.MustCompile(`(?:value|service|file): ()`)
	plainValue = regexp.MustCompile(`^[\w./-]*\)?$`)
	// plainPath matches the path of a file that is no end of a password which the parser took for a path.
	plainPath = regexp.MustCompile(`^/[\w./-]+$`)
)

// Mask hides passwords in a text: the secrets that this process knows, and any text in the position
// of a password.
func Mask(s string) string {
	return secrecy.Mask(secretInDSN.ReplaceAllString(s, "${1}${3}*****"))
}

// Translate turns an error into a *queue.Error with a kind and a remedy. Translate(nil) is nil.
func Translate(err error) error {
	if err == nil {
		return nil
	}
	var own *queue.Error
	if errors.As(err, &own) {
		return err
	}
	before, attempt := attempts(err)
	var pg *pgconn.PgError
	var connect *pgconn.ConnectError
	if errors.As(attempt, &pg) {
		if pg.Code == "28P01" && errors.As(err, &connect) && connect.Config.Password == "" { // the server does not say that it got none
			return queue.NewError(queue.KindUnavailable, Mask(pg.Message)+before, "SQLSTATE "+pg.Code,
				"no password was given: write it into ~/.pgpass (HOST:PORT:DATABASE:USER:PASSWORD, mode 0600) or into PGPASSWORD").Because(err)
		}
		if errors.As(err, &connect) {
			do := ""
			switch pg.Code {
			case "42704": // a parameter that is neither the driver's nor the server's
				do = "take it out of them: other programs may know it, the driver and the server do not"
			case "22023", "42601", "42602", "55P02": // its value, its form or its name; one that no session may set
				do = "correct it there, or take it out"
			}
			if do != "" {
				return queue.NewError(queue.KindConfig, Mask(pg.Message), "connection string, DATABASE_URL, PGOPTIONS or service file", do).Because(err)
			}
		}
		return serverError(pg, before, err)
	}
	var netErr net.Error
	var lookup *net.DNSError
	what := ""
	switch {
	case errors.Is(err, pgconn.ErrReadOnlyConnection), errors.Is(err, pgconn.ErrStandbyConnection): // of any attempt
		what = "no server of the connection string takes changes"
		if _, dial, found := strings.Cut(Mask(err.Error()), "dial error: "); found {
			dial, _, _ = strings.Cut(dial, "\n")
			what += "; one does not answer: " + dial
		}
		return queue.NewError(queue.KindUnavailable, what, "",
			"check that the primary runs, and that neither it nor the login or the database is read-only (default_transaction_read_only)").Because(err)
	case errors.As(err, &connect):
		what = "no connection to PostgreSQL: " + reason(attempt)
	case errors.Is(err, context.DeadlineExceeded):
		what = "PostgreSQL did not answer in time"
	case errors.As(err, &netErr), pgconn.SafeToRetry(err), strings.Contains(err.Error(), "conn closed"),
		strings.Contains(err.Error(), "unexpected EOF"), strings.Contains(err.Error(), "closed pool"):
		what = "the connection to PostgreSQL was lost: " + reason(err)
	default:
		return &queue.Error{Kind: queue.KindFailed, What: queue.Clean(Mask(err.Error())), Err: err}
	}
	do := "check that the server runs and is reachable; see qtop doctor"
	switch {
	case connect != nil && errors.As(attempt, &lookup) && lookup.IsTimeout:
		do = "check the name servers of this machine, or write the address of the host into /etc/hosts"
	case strings.Contains(what, "refused TLS"):
		do = "give the server TLS, or write sslmode=disable in the connection string where plain text is meant"
	case strings.Contains(what, "x509:"):
		do = "name the file of the authority's certificate as sslrootcert in the connection string, and the host as the certificate of the server does"
	}
	return queue.NewError(queue.KindUnavailable, what+before, "", do).Because(err)
}

// attempts returns the error of the last attempt of a failed connect, which decides what to do, before it a
// text of the earlier ones that failed otherwise: the driver tries each address of each host, some of
// them with and without TLS, and stops where a further attempt is useless.
func attempts(err error) (before string, last error) {
	var connect *pgconn.ConnectError
	if !errors.As(err, &connect) || connect.Unwrap() == nil {
		return "", err
	}
	last = connect.Unwrap()
	for cause := last; cause != nil; cause = errors.Unwrap(cause) {
		joined, several := cause.(interface{ Unwrap() []error })
		if !several {
			continue
		}
		all := joined.Unwrap()
		last = all[len(all)-1]
		seen := []string{innermost(last)}
		for i, e := range all[:len(all)-1] {
			server, _, _ := strings.Cut(e.Error(), "): ")
			if strings.Contains(e.Error(), "server refused TLS") && strings.HasPrefix(all[i+1].Error(), server) {
				continue // the next attempt, without TLS, is what sslmode=prefer means
			}
			if cause := innermost(e); !slices.Contains(seen, cause) {
				seen = append(seen, cause)
				before += queue.Choose(before == "", " (before that: ", "; ") + reason(e)
			}
		}
		if before != "" {
			before += ")"
		}
		break
	}
	return before, last
}

// innermost returns the cause of a failed attempt without the address that it is about.
func innermost(err error) string {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code
	}
	msg := err.Error()
	return msg[strings.LastIndex(msg, ": ")+1:]
}

// NoFunction reports whether a statement failed because the database lacks the function that it
// calls: the schema is older than this program, as it is during an upgrade.
func NoFunction(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == "42883"
}

// WaitedForLock reports whether a statement failed because it waited longer than lock_timeout for a lock
// of another session.
func WaitedForLock(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == "55P03"
}

// ValueUnreadable reports whether a statement may have failed because of one value that the database
// cannot read, as on a damaged page.
func ValueUnreadable(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.SeverityUnlocalized == "ERROR" && (firstTwo(pg.Code) == "XX" || firstTwo(pg.Code) == "22")
}

// reason returns the innermost message of an error, because the outer messages repeat host and
// user.
func reason(err error) string {
	msg := Mask(err.Error())
	if i := strings.LastIndex(msg, "dial error: "); i >= 0 {
		msg = msg[i+len("dial error: "):]
	}
	msg = strings.ReplaceAll(strings.TrimSpace(msg), "\n", "; ")
	// The resolver reports "no such host" also for a name that exists but has no address.
	return strings.ReplaceAll(msg, "no such host", "DNS has no address for this name")
}

// serverError explains an error of the server; before is a text of earlier attempts to connect.
func serverError(pg *pgconn.PgError, before string, err error) error {
	e := &queue.Error{Kind: queue.KindFailed, What: queue.Clean(Mask(pg.Message)), Where: queue.Clean("SQLSTATE " + pg.Code), Err: err}
	switch {
	case pg.Code == "42501" && strings.Contains(pg.Message, "read-only"), pg.Code == "25006":
		e.What = queue.Clean("this session is read-only: " + pg.Message)
		e.Do = queue.Clean("qtop doctor says whether the server is a standby, or the login, the database or the profile is read-only")
	case pg.Hint != "" && (pg.Code == "42501" || pg.Code == "23505"): // raised by a function of qtop, whose hint is the remedy
		e.Do = queue.Clean(Mask(pg.Hint))
	case pg.Code == "42501":
		e.Kind, e.Do = queue.KindPermission, queue.Clean(cmp.Or(Mask(pg.Hint), "this login lacks a role: the check rights of qtop doctor names the roles and the GRANT"))
	case pg.Code == "42P01", pg.Code == "42883", pg.Code == "42703":
		e.Do = queue.Clean("the schema is missing or older than this program: run qtop migrate up")
	case pg.Code == "42725": // the call fits two functions of this name
		e.Do = queue.Clean("another function of this name exists: the check foreign of qtop doctor names it")
	case slices.Contains([]string{"22023", "22008", "22003", "22P02", "22007"}, pg.Code): // a value that the caller gave
		e.Kind, e.Do = queue.KindUsage, queue.Clean(Mask(pg.Hint))
	case pg.Code == "22021":
		e.Kind, e.Do = queue.KindUsage, queue.Clean("a text must be UTF-8 without zero bytes")
	case pg.Code == "22P05" && !strings.Contains(pg.Detail, `\u0000`): // the encoding of the database lacks the character
		e.Kind, e.Do = queue.KindUsage, queue.Clean("the database or the client cannot hold this character: the checks named encoding of qtop doctor say which; a database for qtop needs UTF8")
	case pg.Code == "22P05":
		e.Kind, e.What, e.Do = queue.KindUsage, queue.Clean(`PostgreSQL stores no \u0000 in text or JSON`), queue.Clean("leave that character out")
	case pg.Code == "28000" && strings.Contains(pg.Message, "pg_hba.conf"): // in every language of the server
		e.Kind, e.Do = queue.KindUnavailable, queue.Clean("pg_hba.conf of the server must let this login into this database from this address, and be read again")
	case pg.Code == "28P01", pg.Code == "28000", pg.Code == "3D000":
		e.Kind, e.Do = queue.KindUnavailable, queue.Clean("check user, database and password of the connection string")
	case pg.Code == "57014":
		e.Kind, e.What = queue.KindUnavailable, queue.Clean("the server cancelled the statement: "+Mask(pg.Message))
	case noSession(pg) && strings.HasPrefix(pg.Message, "could not write init file"):
		e.Kind, e.What = queue.KindUnavailable, queue.Clean("the server cannot begin a session: "+pg.Message)
		e.Do = queue.Clean("make room on the disk of the server: it may be full; sessions that are open go on reading")
	case noSession(pg) && pg.Code == "55000":
		e.Kind, e.Do = queue.KindUnavailable, queue.Clean(cmp.Or(Mask(pg.Hint), "see ALLOW_CONNECTIONS of the database: an operator opens it with ALTER DATABASE"))
	case noSession(pg) && firstTwo(pg.Code) == "XX":
		e.Kind = queue.KindUnavailable
	case strings.HasPrefix(pg.Code, "57P"), strings.HasPrefix(pg.Code, "08"), strings.HasPrefix(pg.Code, "53"):
		e.Kind = queue.KindUnavailable
	}
	e.What = queue.Clean(e.What.String() + before)
	return e
}
