package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/qtop/qtop/pgclient/inspect"
	"github.com/qtop/qtop/pgclient/queue"
)

// How many connections a worker host and a console have: all that they ever open, and those without
// which they do nothing.
const (
	hostMost, hostIdle       = hostConns + consoleMost, 4
	consoleMost, consoleIdle = 7, 2 // pgclient.Open: one looks, three read, two act; a listener
)

// connectionFindings compares how many connections the server, the database and each login may have
// with those that a worker host and a console open. A pooler has other limits, which
// poolerFinding names.
func connectionFindings(ctx context.Context, x patient) []finding {
	if x.session.Pooler {
		return []finding{{"note", "connections", queue.Clean("not looked at: the pooler opens the connections of the server"), "run qtop doctor over a direct connection"}}
	}
	have, err := inspect.Connections(ctx, x.client)
	if err != nil {
		return []finding{x.unread("connections", err)}
	}
	if x.noLogins != nil {
		return []finding{x.unread("connections", x.noLogins)}
	}
	return judgeConnections(have, x.logins)
}

func judgeConnections(have inspect.ConnectionRoom, logins []inspect.Login) []finding {
	var out []finding
	enough := fmt.Sprintf("%d for each worker host, %d for each console, and those of producers", hostMost, consoleMost)
	if have.Limit >= 0 && have.Limit < hostMost+consoleMost {
		out = append(out, finding{
			queue.Choose(have.Limit < hostIdle+consoleIdle, "bad", "note"), "connections",
			queue.Clean(fmt.Sprintf("DATABASE %s accepts %d connections at once: one worker host and one console open up to %d", have.Database, have.Limit, hostMost+consoleMost)),
			fmt.Sprintf("ALTER DATABASE %s CONNECTION LIMIT -1, or a number that holds %s", have.Database, enough),
		})
	}
	switch {
	case have.Server < hostMost+consoleMost:
		out = append(out, finding{
			queue.Choose(have.Server < hostIdle+consoleIdle, "bad", "note"), "connections",
			queue.Clean(fmt.Sprintf("max_connections leaves %d connections for all logins but superusers: one worker host and one console open up to %d", have.Server, hostMost+consoleMost)),
			"raise max_connections and restart the server: it has to hold " + enough,
		})
	case have.Server-have.Used < hostMost:
		out = append(out, finding{
			"note", "connections", queue.Clean(fmt.Sprintf("%d of the %d connections of the server are in use: one more worker host opens up to %d", have.Used, have.Server, hostMost)),
			"end those that nobody needs (pg_stat_activity), use a pooler, or raise max_connections and restart the server",
		})
	}
	limits := 0
	for _, l := range logins {
		f, limited := limitFinding(l)
		if !limited {
			continue
		}
		if limits++; limits <= shownLogins {
			out = append(out, f)
		}
	}
	out = append(out, leftOut("connections", min(limits, shownLogins), limits)...)
	if len(out) == 0 {
		return []finding{{"ok", "connections", queue.Clean(fmt.Sprintf("%d of %d in use, and no login of qtop has a limit below its need", have.Used, have.Server)), ""}}
	}
	return out
}

// limitFinding judges the CONNECTION LIMIT of a login by what it does: a worker host, or a console.
// The connections of producers are those of their programs.
func limitFinding(l inspect.Login) (f finding, limited bool) {
	has := func(roles ...string) bool {
		return slices.ContainsFunc(l.Roles, func(r string) bool { return slices.Contains(roles, r) })
	}
	what, most, idle := "a console", consoleMost, consoleIdle
	switch {
	case has("dot_executor", "webhook_worker"):
		what, most, idle = "a worker host", hostMost, hostIdle
	case !has("queue_viewer", "workflow_admin", "dead_letter_operator"):
		return finding{}, false
	}
	if l.Limit < 0 || l.Limit >= most {
		return finding{}, false
	}
	return finding{
		queue.Choose(l.Limit < idle, "bad", "note"), "connections",
		queue.Clean(fmt.Sprintf("ROLE %s may have %d connections at once: %s opens up to %d", l.Quoted, l.Limit, what, most)),
		fmt.Sprintf("ALTER ROLE %s CONNECTION LIMIT -1, or at least %d for each %s that uses it", l.Quoted, most, what[2:]),
	}, true
}
