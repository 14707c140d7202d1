package pgerror

// This file says, for each SQLSTATE, what a host does with a result that the database
// refused.

import (
	"errors"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/qtop/qtop/pgclient/queue"
)

// Fate is what becomes of a result that the database did not take. The work is done, so
// dropping the result means doing it again.
type Fate int

const (
	// GiveBack: this session may not or cannot record it, another might, or an operator
	// has to change something. The result is tried again, alone, as long as its lease
	// lasts; then the job goes back with its lease, which counts as lost.
	GiveBack Fate = iota
	// Again: the cause passes by itself and has nothing to do with the result. The same
	// statement is sent until the database answers, also past the lease: its token fences.
	Again
	// GiveUp: the database refuses what the result says. It is tried alone and without
	// its text; if that is refused too, it is dropped.
	GiveUp
)

func (f Fate) String() string { return [...]string{"give back", "record again", "give up"}[f] }

// StateFate classes one SQLSTATE, or the class of one where no row names the code.
type StateFate struct {
	State string // five characters, or the two of a class
	Fate  Fate
	// Smaller: a statement over fewer rows may pass.
	Smaller bool
	Why     string
}

// StateFates is the whole table: each class of PostgreSQL's appendix A once, and the codes
// that differ from their class.
func StateFates() []StateFate {
	return []StateFate{
		{"00", GiveBack, false, "success is no error"},
		{"01", GiveBack, false, "a warning is no error"},
		{"02", GiveBack, false, "no data is no error"},
		{"03", GiveBack, false, "a statement that did not complete says nothing of its cause"},
		{"08", Again, false, "the connection was lost or refused"},
		{"09", GiveBack, false, "a trigger that somebody added failed"},
		{"0A", GiveBack, false, "the server does not support the statement: program and server do not fit"},
		{"0B", GiveBack, false, "no transaction could begin that way"},
		{"0F", GiveBack, false, "locators are not used: somebody's trigger"},
		{"0L", GiveBack, false, "the login lacks a right"},
		{"0P", GiveBack, false, "a role is missing"},
		{"0Z", GiveBack, false, "diagnostics are not used: somebody's trigger"},
		{"10", GiveBack, false, "XQuery is not used: somebody's trigger"},
		{"20", GiveBack, false, "a CASE without a branch: the code in the database and the program do not fit"},
		{"21", GiveBack, false, "more rows than one: the code in the database is not as it was installed"},
		{"22", GiveUp, false, "a value of the result is none that the database can hold"},
		{"23", GiveUp, false, "a constraint refuses the result"},
		{"24", GiveBack, false, "cursors are not used: somebody's trigger or a pooler"},
		{"25", GiveBack, false, "the session is in a state in which nothing can be written"},
		{"25006", Again, false, "the server or the session is read-only: a failover, a standby, an operator before a full disk"},
		{"25P03", Again, false, "the session was ended because its transaction was idle"},
		{"25P04", Again, true, "the transaction was ended because it took too long"},
		{"26", Again, false, "the prepared statement is gone: a pooler or a restart gave another session"},
		{"27", GiveBack, false, "a trigger changed the row that is being changed: somebody's trigger"},
		{"28", GiveBack, false, "the login is refused"},
		{"2B", GiveBack, false, "a role that others depend on: nothing that a result does"},
		{"2D", GiveBack, false, "a transaction ended inside a function: somebody's trigger"},
		{"2F", GiveBack, false, "an SQL function failed: somebody's trigger"},
		{"34", GiveBack, false, "cursors are not used: somebody's trigger or a pooler"},
		{"38", GiveBack, false, "a function in another language failed: somebody's trigger"},
		{"39", GiveBack, false, "a function in another language failed: somebody's trigger"},
		{"3B", GiveBack, false, "a savepoint failed: somebody's trigger"},
		{"3D", GiveBack, false, "the database is gone or has another name"},
		{"3F", GiveBack, false, "the schema is gone"},
		{"40", Again, false, "the transaction lost against another: serialization, deadlock"},
		{"42", GiveBack, false, "a right, a table or a function is missing: the schema and the program do not fit"},
		{"44", GiveUp, false, "a view's check refuses the result"},
		{"53", Again, false, "the server lacks something that comes back: disk, connections"},
		{"53200", Again, true, "the server lacks memory"},
		{"53400", Again, true, "a limit of the server's configuration was met"},
		{"54", GiveUp, true, "the statement or a value of it is beyond a limit of the server"},
		{"55", GiveBack, false, "an object is not in the state for it"},
		{"55006", Again, false, "the object is in use"},
		{"55P03", Again, false, "a lock was not free in time"},
		{"57", Again, false, "somebody ended the statement, the session or the server"},
		{"57014", Again, true, "the statement was cancelled, by somebody or by statement_timeout"},
		{"58", Again, false, "the server's file system failed"},
		{"72", Again, false, "the snapshot was too old"},
		{"F0", GiveBack, false, "the server's configuration file is wrong"},
		{"HV", GiveBack, false, "a foreign table failed: somebody's trigger"},
		{"P0", GiveBack, false, "a function raised: somebody's trigger, or a rule of ours"},
		{"XX", GiveBack, false, "an internal error, or damaged data"},
	}
}

// FateOf classes an error of a statement that records results. smaller: one over fewer
// results may pass. What is no answer of the server is a lost connection: Again.
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
	return found.Fate, found.Smaller // a class that PostgreSQL does not have: GiveBack
}

func firstTwo(code string) string { return code[:min(2, len(code))] }

// Retryable tells the failures after which the same statement may run again.
func Retryable(err error) bool {
	fate, _ := FateOf(err)
	return fate == Again
}
