package pgerror

import (
	"cmp"
	"errors"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/qtop/qtop/pgclient/queue"
)

// Fate says what a host does with the result of finished work that the database refused to record.
// Dropping the result would mean repeating the work.
type Fate int

const (
	// GiveBack means that this session cannot record the result, but another session might, or an
	// operator has to change something. The host retries this result separately until its lease
	// expires; then the job returns to the queue, and the lease counts as lost.
	GiveBack Fate = iota
	// Again means that the cause is temporary and has nothing to do with the result. The host
	// repeats the same statement until the database answers, even after the lease has expired: the
	// token of the lease fences the result.
	Again
	// GiveUp means that the database refuses the content of the result. The host retries this
	// result separately, without its text; if that is refused too, it drops the result.
	GiveUp
)

func (f Fate) String() string { return [...]string{"give back", "record again", "give up"}[f] }

// StateFate says the Fate of an ERROR with one SQLSTATE, or with one of a whole class of them (two characters).
type StateFate struct {
	State string // five characters; or two, for a whole class
	Fate  Fate
	// Smaller says that the statement may succeed with fewer rows.
	Smaller bool
	Why     string // the reason for this Fate, in one sentence
}

// StateFates returns the whole table: each class of PostgreSQL's appendix A once, and the codes
// that differ from their class. For a FATAL or PANIC only Smaller counts: see FateOf.
func StateFates() []StateFate {
	return []StateFate{
		{"00", GiveBack, false, "success is no error"},
		{"01", GiveBack, false, "a warning is no error"},
		{"02", GiveBack, false, "no data is no error"},
		{"03", GiveBack, false, "a statement that did not complete does not say the cause"},
		{"08", Again, false, "the connection was lost or refused"},
		{"09", GiveBack, false, "a trigger that others added failed"},
		{"0A", GiveBack, false, "the server does not support the statement: program and server do not fit"},
		{"0B", GiveBack, false, "no transaction could begin that way"},
		{"0F", GiveBack, false, "locators are not used: a trigger that others added"},
		{"0L", GiveBack, false, "the login lacks a right"},
		{"0P", GiveBack, false, "a role is missing"},
		{"0Z", GiveBack, false, "diagnostics are not used: a trigger that others added"},
		{"10", GiveBack, false, "XQuery is not used: a trigger that others added"},
		{"20", GiveBack, false, "a CASE without a branch: the code in the database and the program do not fit"},
		{"21", GiveBack, false, "more rows than one: the code in the database is not as it was installed"},
		{"22", GiveUp, false, "a value of the result is none that the database can hold"},
		{"23", GiveUp, false, "a constraint refuses the result"},
		{"24", GiveBack, false, "cursors are not used: a trigger that others added, or a pooler"},
		{"25", GiveBack, false, "the session is in a state in which nothing can be written"},
		{"25006", Again, false, "the server or the session is read-only: a failover, a standby, an operator before a full disk"},
		{"25P03", Again, false, "the session was ended because its transaction was idle"},
		{"25P04", Again, true, "the transaction was ended because it took too long"},
		{"26", Again, false, "the prepared statement is gone: a pooler or a restart gave another session"},
		{"27", GiveBack, false, "a trigger changed the row that is being changed: a trigger that others added"},
		{"28", GiveBack, false, "a login was refused within a statement: a trigger that others added"},
		{"2B", GiveBack, false, "a role that others depend on: nothing that a result does"},
		{"2D", GiveBack, false, "a transaction ended inside a function: a trigger that others added"},
		{"2F", GiveBack, false, "an SQL function failed: a trigger that others added"},
		{"34", GiveBack, false, "cursors are not used: a trigger that others added, or a pooler"},
		{"38", GiveBack, false, "a function in another language failed: a trigger that others added"},
		{"39", GiveBack, false, "a function in another language failed: a trigger that others added"},
		{"3B", GiveBack, false, "a savepoint failed: a trigger that others added"},
		{"3D", GiveBack, false, "a statement names a database that does not exist: a trigger that others added"},
		{"3F", GiveBack, false, "the schema is gone"},
		{"40", Again, false, "the transaction lost against another: serialization, deadlock"},
		{"42", GiveBack, false, "a right, a table or a function is missing: the schema and the program do not fit"},
		{"44", GiveUp, false, "a view's check refuses the result"},
		{"53", Again, false, "the server temporarily lacks a resource: disk, connections"},
		{"53200", Again, true, "the server lacks memory"},
		{"53400", Again, true, "a limit of the server's configuration was met"},
		{"54", GiveUp, true, "the statement or a value of it is beyond a limit of the server"},
		{"55", GiveBack, false, "an object is not in the state for it"},
		{"55006", Again, false, "the object is in use"},
		{"55P03", Again, true, "another session had locked a row, perhaps of one result alone"},
		{"57", Again, false, "somebody ended the statement, the session or the server"},
		{"57014", Again, true, "the statement was cancelled, by somebody or by statement_timeout"},
		{"58", Again, false, "the server's file system failed"},
		{"72", Again, false, "the snapshot was too old"},
		{"F0", GiveBack, false, "the server's configuration file is wrong"},
		{"HV", GiveBack, false, "a query through foreign-data wrappers failed: a trigger that others added"},
		{"P0", GiveBack, false, "a function raised: a trigger that others added, or a check in qtop's functions"},
		{"XX", GiveBack, false, "an internal error, or damaged data"},
	}
}

// FateOf classifies the error of a statement that records results; smaller means that the statement
// may succeed with fewer results. An error that does not come from the server counts as a lost
// connection, so its fate is Again; so does a FATAL or PANIC of any SQLSTATE.
func FateOf(err error) (fate Fate, smaller bool) {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		if queue.KindOf(Translate(err)) == queue.KindUnavailable {
			return Again, false
		}
		return GiveBack, false
	}
	found := StateFate{}
	for _, f := range StateFates() {
		if f.State == pg.Code || f.State == firstTwo(pg.Code) && found.State == "" {
			found = f
		}
	}
	if noSession(pg) {
		return Again, found.Smaller // of those that end a session, such as transaction_timeout
	}
	return found.Fate, found.Smaller // for a class that PostgreSQL does not have: the zero value, GiveBack
}

// noSession reports whether the server or a pooler ended the session or let none begin: a restart, a full
// disk, a database that accepts no connections, a login that is refused. It says nothing about the statement.
func noSession(pg *pgconn.PgError) bool {
	severity := cmp.Or(pg.SeverityUnlocalized, pg.Severity) // a pooler may send only one of them, in English
	return severity == "FATAL" || severity == "PANIC"
}

func firstTwo(code string) string { return code[:min(2, len(code))] }

// Retryable reports whether repeating the same statement after this error may succeed.
func Retryable(err error) bool {
	fate, _ := FateOf(err)
	return fate == Again
}

// Uncommitted is an error within a transaction of which COMMIT was not sent.
type Uncommitted struct{ Err error }

// Error returns the text of the cause.
func (u Uncommitted) Error() string { return u.Err.Error() }

// Unwrap returns the cause.
func (u Uncommitted) Unwrap() error { return u.Err }

// MayHaveCommitted reports whether a statement that ran alone, in one transaction, may have been
// committed although it returned err: the connection was lost before the answer came, or the server
// or a pooler ended the session. An error of the statement itself means that the server rolled it
// back; one before the statement was sent, or before the COMMIT of its transaction, that nothing was
// committed. MayHaveCommitted(nil) is false.
func MayHaveCommitted(err error) bool {
	var pg *pgconn.PgError
	var before Uncommitted
	var connect *pgconn.ConnectError
	if errors.As(err, &before) || errors.As(err, &connect) || pgconn.SafeToRetry(err) {
		return false
	}
	if !errors.As(err, &pg) {
		return err != nil
	}
	return pg.SeverityUnlocalized != "ERROR" || firstTwo(pg.Code) == "08" || pg.Code == "40003"
}
