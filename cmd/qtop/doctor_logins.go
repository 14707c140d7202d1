package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/qtop/qtop/pgclient/inspect"
	"github.com/qtop/qtop/pgclient/queue"
)

// loginFindings are what roles and the database bring to a session, and logins that
// may do more than their work needs.
func loginFindings(ctx context.Context, x patient) []finding {
	settings, err := inspect.LoginSettings(ctx, x.client)
	if err != nil {
		return []finding{{"bad", "login", queue.Clean(err.Error()), ""}}
	}
	var out []finding
	if x.settings.ReadOnly {
		out = append(out, finding{"note", "read-only", queue.Clean("read_only is set: this program changes nothing"), "leave out read_only to act"})
	}
	mayAct := slices.ContainsFunc(x.session.Roles, func(r string) bool { return r != "queue_viewer" })
	for _, set := range settings {
		if f := settingFinding(set, mayAct); f.Check != "" {
			out = append(out, f)
		}
	}
	logins, err := inspect.Logins(ctx, x.client)
	if err != nil {
		return append(out, finding{"bad", "login", queue.Clean(err.Error()), ""})
	}
	for _, l := range logins {
		out = append(out, wideFindings(l)...)
	}
	if len(out) > shownLogins {
		more := len(out) - shownLogins
		slices.SortStableFunc(out, func(a, b finding) int { return strings.Compare(a.State, b.State) }) // bad before note, this login first
		out = append(out[:shownLogins:shownLogins], finding{"note", "logins", queue.Clean(fmt.Sprintf("%d more lines about logins", more)), "mend these first"})
	}
	if len(out) == 0 {
		out = []finding{{"ok", "logins", queue.Clean(fmt.Sprintf("%d, none may do more than its roles; no setting of theirs changes what a statement does", len(logins))), ""}}
	}
	return out
}

// shownLogins is how many lines about logins the doctor prints.
const shownLogins = 20

// settingFinding judges one setting; without a check it is harmless. Sessions of qtop
// have a path, an encoding and an isolation level of their own.
func settingFinding(x inspect.LoginSetting, mayAct bool) finding {
	value := strings.ToLower(x.Value.String())
	whose := settingOwner(x)
	reset := "ALTER " + whose + " RESET " + x.Name
	if !x.Role.Empty() && !x.Database.Empty() {
		reset = "ALTER ROLE " + x.Role.String() + " IN DATABASE " + x.Database.String() + " RESET " + x.Name
	}
	if x.Server {
		reset = "set it back in the configuration of the server"
	}
	says := whose + " sets " + x.Name + " = " + x.Value.String()
	switch x.Name {
	case "default_transaction_read_only":
		if slices.Contains([]string{"on", "true", "yes", "1"}, value) {
			return finding{queue.Choose(x.Mine && mayAct, "bad", "note"), "read-only", queue.Clean(says + ": nothing can be changed"), reset}
		}
	case "session_replication_role":
		if value != "origin" {
			return finding{"bad", "triggers", queue.Clean(says + ": triggers do not run, so nothing is counted, audited or kept from change"), reset}
		}
	case "search_path":
		return finding{"note", "path", queue.Clean(says + ": qtop sets its own; other programs of the login find what stands there first"), reset}
	case "client_encoding":
		if strings.ReplaceAll(value, "-", "") != "utf8" && value != "unicode" {
			return finding{"note", "encoding", queue.Clean(says + ": qtop speaks UTF-8; other programs of the login may not"), reset}
		}
	case "default_transaction_isolation":
		if value != "read committed" {
			return finding{"note", "isolation", queue.Clean(says + ": behind a pooler statements of qtop fail with SQLSTATE 40001 under load"), reset}
		}
	}
	return finding{}
}

func settingOwner(x inspect.LoginSetting) string {
	switch {
	case x.Server:
		return "the configuration of the server"
	case x.Role.Empty() && x.Database.Empty():
		return "ROLE ALL"
	case x.Role.Empty():
		return "DATABASE " + x.Database.String()
	}
	return "ROLE " + x.Role.String()
}

// wideFindings name what a login may do beside its work.
func wideFindings(l inspect.Login) []finding {
	var out []finding
	if slices.Contains(l.Attributes, "SUPERUSER") {
		whose := queue.Choose(l.Mine, "this login", "the login "+l.Name.String())
		out = append(out, finding{"note", "superuser", queue.Clean(whose + " is a superuser: no right is checked, and what it runs may do anything on the server"),
			"give hosts and people logins of their own, with the roles that they need"})
	} else if len(l.Attributes) > 0 {
		out = append(out, finding{"note", "wide login", queue.Clean(l.Name.String() + " has " + strings.Join(l.Attributes, ", ") + ", which no work of qtop needs"),
			"ALTER ROLE " + l.Name.String() + " NO" + strings.Join(l.Attributes, " NO")})
	}
	var works, administers []string
	for _, r := range l.Roles {
		switch r {
		case "dot_executor", "router_worker", "saga_orchestrator", "webhook_worker", "lease_reset_cleaner":
			works = append(works, r)
		case "queue_owner", "workflow_admin", "subscription_admin", "dead_letter_operator":
			administers = append(administers, r)
		}
	}
	if slices.Contains(administers, "queue_owner") {
		out = append(out, finding{"note", "wide login", queue.Clean(l.Name.String() + " is a member of queue_owner: it may change every table and function of qtop"),
			"only the login that runs qtop migrate needs it: REVOKE queue_owner FROM the others"})
	}
	if len(works) > 0 && len(administers) > 0 {
		out = append(out, finding{"note", "wide login", queue.Clean(l.Name.String() + " works (" + strings.Join(works, ", ") + ") and administers (" + strings.Join(administers, ", ") + ")"),
			"a login of its own for each: whoever takes over a host is an operator too"})
	}
	return out
}
