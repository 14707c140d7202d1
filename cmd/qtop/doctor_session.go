package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/qtop/qtop/pgclient/actions"
	"github.com/qtop/qtop/pgclient/embedded"
	"github.com/qtop/qtop/pgclient/inspect"
	"github.com/qtop/qtop/pgclient/pgsession"
	"github.com/qtop/qtop/pgclient/queue"
)

// Checks of `qtop doctor`: the connection, the rights of the login, the clock.

// elsewhereFindings report that this is not the database that the operator
// means: a copy that has not been adopted, or another server than the expected
// one.
func elsewhereFindings(ctx context.Context, x patient) []finding {
	s, err := x.client.Snapshot(ctx, 0)
	if err != nil || s.Refused != nil {
		return nil // hostFinding reports it
	}
	var out []finding
	if !s.Server.CloneOf.Empty() {
		of, do, _ := strings.Cut(s.Server.CloneOf.String(), ": run ")
		out = append(out, finding{"bad", "clone", queue.Clean(of), do})
	}
	if !s.Server.Unexpected.Empty() {
		out = append(out, finding{"bad", "server", s.Server.Unexpected, "connect to the server that is meant, or name this one in expect_server"})
	}
	return out
}

func tlsFinding(s queue.Session) finding {
	switch {
	case s.TLS:
		return finding{"ok", "tls", s.Encryption, ""}
	case s.Local:
		return finding{"ok", "tls", queue.Clean(s.Encryption.String() + ", which needs none"), ""}
	case s.Pooler:
		return finding{"note", "tls", s.Encryption, "sslmode=verify-full in the connection string, and server_tls_sslmode = verify-full in the pooler"}
	}
	return finding{"note", "tls", s.Encryption, "sslmode=verify-full in the connection string"}
}

// environmentFinding reports whether the database has the name of an
// environment (such as production), and whether that environment is guarded.
func environmentFinding(_ context.Context, x patient) []finding {
	e := x.session.Environment
	state := queue.Choose(e.Guard(x.settings.Production) != "", "guarded", "open")
	if e.Name.Empty() {
		return []finding{{"note", "environment", queue.Clean("the database does not say which one it is; " + state + ", by the profile alone"),
			"qtop environment set NAME --guard guarded|open --reason R"}}
	}
	if !e.Guarded && x.settings.Production {
		return []finding{{"note", "environment", queue.Clean(fmt.Sprintf("%s, open by the database and guarded by the profile: without the profile nothing guards it", e.Name)),
			"qtop environment set NAME --guard guarded --reason R, if it is production"}}
	}
	return []finding{{"ok", "environment", queue.Clean(fmt.Sprintf("%s, %s", e.Name, state)), ""}}
}

// clockFinding compares the clocks of this machine and of the server. The queue
// uses only the server's clock; a difference makes only the ages on this screen
// wrong.
func clockFinding(ctx context.Context, x patient) []finding {
	before := time.Now()
	var at time.Time
	if err := x.client.Read().QueryRow(ctx, "SELECT clock_timestamp()").Scan(&at); err != nil {
		return []finding{{"bad", "clock", queue.Said(err), ""}}
	}
	mid := before.Add(time.Since(before) / 2)
	skew := at.Sub(mid).Abs().Round(time.Millisecond)
	if skew > 5*time.Second {
		return []finding{{"note", "clock", queue.Clean("this machine and the server differ by " + queue.DurationText(skew)), "run NTP on both"}}
	}
	return []finding{{"ok", "clock", queue.Clean("within " + queue.DurationText(skew) + " of the server"), ""}}
}

func hostFinding(ctx context.Context, x patient) []finding {
	s, err := x.client.Snapshot(ctx, 0)
	switch {
	case err != nil:
		return []finding{{"bad", "snapshot", queue.Said(err), ""}}
	case s.Refused != nil:
		return []finding{{"note", "snapshot", s.Refused.What, s.Refused.Do.String() + queue.Choose(s.Refused.Kind == queue.KindPermission, ", where a person looks with it; a host or a producer needs none", "")}}
	}
	out := []finding{{"ok", "hosts", queue.Clean(fmt.Sprintf("%d alive", s.Flow.HostsAlive)), ""}}
	if s.Flow.HostsAlive == 0 {
		out[0] = finding{"note", "hosts", queue.Clean("no worker host is alive"), "run qtop worker, or start loops in the console (gw)"}
	}
	for _, u := range s.Unticked() {
		out = append(out, finding{"note", "not ticked", queue.Clean(joined(u.Workers) + ": " + u.Why.String()),
			"run qtop worker with these loops, or qtop scheduler install where pg_cron is to tick; qtop scheduler lists them"})
	}
	return out
}

func joined(all []queue.Text) string {
	out := make([]string, len(all))
	for i, t := range all {
		out[i] = t.String()
	}
	return strings.Join(out, ", ")
}

// sessionFindings reports on the connection to the server.
func sessionFindings(ctx context.Context, x patient) []finding {
	s := x.session
	return []finding{
		serverFinding(s),
		tlsFinding(s),
		poolerFinding(ctx, x),
		queue.Choose(s.InRecovery, finding{"note", "standby", queue.Clean("this is a standby: read only"), "connect to the primary to act"},
			finding{"ok", "standby", queue.Clean("this is the primary"), ""}),
	}
}

// serverFinding names the login and the server, which may be too old for the schema.
func serverFinding(s queue.Session) finding {
	f := finding{"ok", "connection", queue.Clean(fmt.Sprintf("%s at %s, PostgreSQL %s", s.User, s.Address, s.Version)), ""}
	number, _, _ := strings.Cut(s.Version.String(), ".")
	if major, err := strconv.Atoi(number); err == nil && major < embedded.MinMajor {
		f.State, f.Remedy = "bad", fmt.Sprintf("use a server of PostgreSQL %d or later: qtop cannot be installed in an older one", embedded.MinMajor)
	}
	return f
}

// poolerFinding reports the mode of a pooler, whether wake signals arrive, and
// what to set.
func poolerFinding(ctx context.Context, x patient) finding {
	note := func(state, found, do string) finding { return finding{state, "pooler", queue.Clean(found), do} }
	if !x.session.Pooler {
		if x.settings.Pooler == "transaction" {
			return note("note", "none in the path, and pooler says transaction: no statement is prepared", "leave pooler out, or write pooler: auto")
		}
		return note("ok", "none in the path", "")
	}
	mode, err := x.client.PoolMode(ctx)
	if err != nil {
		return note("bad", "a pooler is in the path, and its mode cannot be told: "+err.Error(), "see that it has room for two more connections of this login")
	}
	room := fmt.Sprintf("set pool_mode = transaction with listen_dsn, or let default_pool_size hold %d for each worker host and %d for each console", hostMost, consoleMost)
	if mode == "" {
		return note("note", "a pooler in the path, probably in session mode: its mode could not be told within 2 s", room)
	}
	if mode == pgsession.Session {
		return note("note", "a pooler in session mode: "+queue.Choose(x.session.InRecovery, "a standby sends no wakes", "wakes arrive")+", and each connection keeps one of its server connections", room)
	}
	if x.settings.ListenDSN == "" {
		return note("note", "a pooler in transaction mode: LISTEN hears nothing, so worker hosts and consoles poll", "set listen_dsn to a direct connection, in the source that sets dsn")
	}
	if x.session.InRecovery {
		return note("ok", "a pooler in transaction mode; a standby sends no wakes", "")
	}
	if err := x.client.CheckListen(ctx); err != nil {
		return note("bad", "a pooler in transaction mode, and no wake arrives over listen_dsn: "+err.Error(), "set listen_dsn to a direct connection to the same database")
	}
	return note("ok", "a pooler in transaction mode, and wakes arrive over listen_dsn", "")
}

// shownVerbs is the greatest number of verbs that a finding about a missing role names.
const shownVerbs = 6

// grantee says whom a GRANT must name, so that it has an effect for this login.
func (x patient) grantee(ctx context.Context) string {
	if x.session.InForce.Empty() {
		login, err := inspect.ThisLogin(ctx, x.client)
		return queue.Choose(err == nil, login.String(), "the login")
	}
	return x.session.InForce.String() + ", with whose rights the login works, or ALTER ROLE … RESET role if it has its own"
}

// rightFindings lists the rights that actions need and this login lacks.
func rightFindings(ctx context.Context, x patient) (all []finding) {
	lacking := map[string][]string{}
	var needs []string
	for _, act := range actions.Registry() {
		need := x.session.Needs[act.ID]
		if need == "" {
			continue
		}
		if lacking[need] == nil {
			needs = append(needs, need)
		}
		name := act.Words
		switch {
		case act.Local():
			name = "loops of a worker host"
		case act.Twin != "": // part of another verb
			name = act.Spellings[0]
		}
		lacking[need] = append(lacking[need], name)
	}
	if len(needs) == 0 {
		return []finding{{"ok", "rights", queue.Clean("every action"), ""}}
	}
	grantee := x.grantee(ctx)
	for _, need := range needs {
		verbs := lacking[need]
		shown := strings.Join(verbs[:min(len(verbs), shownVerbs)], ", ")
		if more := len(verbs) - shownVerbs; more > 0 {
			shown += fmt.Sprintf(" and %d more", more)
		}
		all = append(all, finding{"note", "rights", queue.Clean("without " + need + ": no " + shown), "GRANT " + need + " TO " + grantee + ", where that is meant"})
	}
	return all
}
