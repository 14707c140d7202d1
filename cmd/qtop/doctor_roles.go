package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/qtop/qtop/pgclient/inspect"
	"github.com/qtop/qtop/pgclient/queue"
)

// shownNames is the greatest number of names in one line of the doctor.
const shownNames = 20

// roleFindings reports on the roles of this database: roles of qtop with
// attributes that they must not have (such as LOGIN or SUPERUSER), their
// members, other databases on the server that use the same roles, and
// executors that any host may work as.
func roleFindings(ctx context.Context, x patient) []finding {
	found, err := inspect.Roles(ctx, x.client)
	if err != nil {
		return []finding{{"bad", "roles", queue.Clean(err.Error()), ""}}
	}
	var out []finding
	databases := map[string]bool{}
	var shared []string
	for _, r := range found.Roles {
		if len(r.Attributes) > 0 {
			out = append(out, finding{"bad", "roles", queue.Clean(r.Role + " has " + strings.Join(r.Attributes, ", ") + ": a group of rights needs none"), r.Remedy()})
		}
		if len(r.MemberOf) > 0 {
			out = append(out, finding{"note", "roles", queue.Clean(r.Role + " is a member of " + firstNames(r.MemberOf) + ": its members have those rights too"),
				"REVOKE " + r.MemberOf[0] + " FROM " + r.Role + ", where that is not meant"})
		}
		if len(r.Members) > 0 {
			members := finding{"ok", "members", queue.Clean(r.Role + ": " + firstNames(r.Members)), ""}
			if r.Name == "queue_owner" && !slices.Equal(r.Members, []string{found.DatabaseOwner}) {
				members.State, members.Remedy = "note", "they may change every row and function; only a login that migrates needs that"
			}
			if slices.Contains([]string{"router_worker", "saga_orchestrator", "lease_reset_cleaner"}, r.Name) {
				members.State, members.Remedy = "note", "REVOKE "+quoted(r.Role)+" FROM "+quoted(r.Members...)+", unless one is the login of a host of release 0.2.0: later hosts do not need it"
			}
			out = append(out, members)
		}
		for _, d := range r.Databases {
			if !databases[d] {
				databases[d] = true
				shared = append(shared, d)
			}
		}
	}
	if len(shared) > 0 {
		out = append(out, finding{"note", "roles", queue.Clean("the same roles reach other databases: " + firstNames(shared)),
			"members have the same rights in both; migrate up --role-prefix gives a new database its own roles"})
	}
	if len(found.OpenExecutors) > 0 {
		out = append(out, finding{"note", "executors", queue.Clean("every member of " + x.roles("dot_executor") + " may work as " + firstNames(found.OpenExecutors)),
			"qtop executor owner ID --owner-role ROLE --reason R"})
	}
	return out
}

// quoted returns names as a list of roles in SQL.
func quoted(names ...string) string {
	list := make([]string, len(names))
	for i, n := range names {
		list[i] = pgx.Identifier{n}.Sanitize()
	}
	return strings.Join(list, ", ")
}

// firstNames joins the names, at most shownNames of them.
func firstNames(names []string) string {
	if len(names) <= shownNames {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:shownNames], ", "), len(names)-shownNames)
}
