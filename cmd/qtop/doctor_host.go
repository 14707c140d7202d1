package main

import (
	"cmp"
	"context"
	"strings"

	"github.com/qtop/qtop/pgclient/inspect"
	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/workerhost"
)

// hostRightFindings reports whether this login has all that a worker host with
// these settings needs: the roles of its loops and, if it has handlers, the
// owner role of the executor as which it claims jobs.
func hostRightFindings(ctx context.Context, x patient) []finding {
	need := workerhost.Roles(x.settings.Loops)
	lacks, schemaOwner, err := inspect.LackedRoles(ctx, x.client, need)
	if err != nil {
		return []finding{x.unread("host rights", err)}
	}
	login, err := inspect.ThisLogin(ctx, x.client)
	if err != nil {
		return []finding{x.unread("host rights", err)}
	}
	executor := cmp.Or(x.settings.Executor, x.settings.HostID)
	var owner inspect.ExecutorOwner
	if len(x.settings.Handlers) > 0 {
		if owner, err = inspect.OwnerOf(ctx, x.client, executor); err != nil {
			return []finding{x.unread("host rights", err)}
		}
	}
	var out []finding
	if len(lacks) > 0 {
		var roles, idle, given []string // given: not even the login itself has the rights
		for _, r := range lacks {
			roles = append(roles, r.Role)
			if r.Member {
				idle = append(idle, r.Role)
			}
			if !r.Own {
				given = append(given, r.Role)
			}
		}
		all := strings.Join(roles, ", ")
		found := "a worker host with this login runs every loop but those that need " + all
		if lacks[0].Name == need[0] {
			found = "a worker host with this login runs no loop: it lacks " + all
		}
		works := cmp.Or(x.session.InForce.String(), login.String())
		do, who := "GRANT "+all+" TO "+works, "it"
		if works != login.String() {
			found, who = found+"; it works with the rights of "+works, works
		}
		if len(idle) > 0 {
			found += " (" + who + " is a member of " + strings.Join(idle, ", ") + ", but does not inherit the rights)"
			do += " WITH INHERIT TRUE, before PostgreSQL 16 " + do + " and ALTER ROLE " + works + " INHERIT"
		}
		switch reset := "ALTER ROLE " + login.String() + " RESET role"; {
		case len(given) == 0:
			do = reset
		case len(given) < len(roles):
			do = "GRANT " + strings.Join(given, ", ") + " TO " + login.String() + " and " + reset
		case works != login.String():
			do += ", which gives it to all its members"
		}
		out = append(out, finding{"note", "host rights", queue.Clean(found), do + ", if a host connects with it"})
	}
	if owner.Foreign {
		out = append(out, finding{"note", "host rights", queue.Clean("a worker host with this login claims no jobs as " + executor + ", which belongs to " + owner.Role),
			"GRANT " + owner.Role + " TO " + login.String() + ", or qtop executor owner " + queue.ShellQuote(executor) + " --owner-role " + queue.ShellQuote(x.session.User.String()) + " --reason R"})
	}
	if len(out) > 0 {
		return out
	}
	if schemaOwner {
		return []finding{{"ok", "host rights", queue.Clean("this login has the rights of the schema's owner, with which a worker host runs; in production give hosts a login with " + x.roles(need...) + " alone"), ""}}
	}
	return []finding{{"ok", "host rights", queue.Clean("all that a worker host needs: " + x.roles(need...) + queue.Choose(owner.Role != "", ", and the executor "+executor, "")), ""}}
}
