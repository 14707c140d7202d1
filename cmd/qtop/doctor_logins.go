package main

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/qtop/qtop/pgclient/inspect"
	"github.com/qtop/qtop/pgclient/queue"
)

// loginFindings reports settings that roles and the database give to sessions,
// and logins with more rights than their work needs.
func loginFindings(ctx context.Context, x patient) []finding {
	var out []finding
	settings, err := inspect.LoginSettings(ctx, x.client)
	if err != nil {
		out = append(out, finding{"bad", "login", queue.Clean(err.Error()), ""})
	}
	if x.settings.ReadOnly {
		out = append(out, finding{"note", "read-only", queue.Clean("read_only is set: this program changes nothing"), "leave out read_only to act"})
	}
	mayAct := slices.ContainsFunc(x.session.Roles, func(r string) bool { return r != "queue_viewer" })
	for _, set := range settings {
		f := settingFinding(set, mayAct, x.session.ReadOnly && !x.settings.ReadOnly)
		if f.Check == "isolation" && x.session.Pooler && slices.Contains(x.session.Roles, "dot_executor") && inForce(set, settings) {
			f.State, f.Found = "bad", queue.Clean(f.Found.String()+", and no job can be claimed: a worker host refuses to start with the loop job_executor")
		}
		if f.Check != "" {
			out = append(out, f)
		}
	}
	if x.noLogins != nil {
		return append(out, finding{"bad", "login", queue.Clean(x.noLogins.Error()), ""})
	}
	for _, l := range x.logins {
		out = append(out, wideFindings(l)...)
	}
	if len(out) > shownLogins {
		more := len(out) - shownLogins
		// Bad before note. The sort is stable, so this login stays first.
		slices.SortStableFunc(out, func(a, b finding) int { return strings.Compare(a.State, b.State) })
		out = append(out[:shownLogins:shownLogins], finding{"note", "logins", queue.Clean(queue.Plural(more, "more line", "more lines") + " about logins"), "fix these first"})
	}
	for _, l := range x.logins {
		switch {
		case l.Migrates && !l.OwnsSchema:
			out = append(out, finding{"note", "migrates", queue.Clean(l.Name.String() + " owns the database, but may not run qtop migrate: it cannot act as " + l.Owner.String()),
				"GRANT " + l.Owner.String() + " TO " + l.Quoted.String() + ", by a superuser, if it is to migrate; CREATEROLE too where a release adds a role"})
		case l.Migrates:
			out = append(out, finding{"ok", "migrates", queue.Clean(l.Name.String() + " owns the database: it may run qtop migrate, and change every row and function"),
				"give hosts and people other logins"})
		}
	}
	if len(out) == 0 {
		out = []finding{{"ok", "logins", queue.Clean(fmt.Sprintf("%d, none may do more than its roles; no setting of theirs changes what a statement does", len(x.logins))), ""}}
	}
	return out
}

// inForce reports whether a setting is that of this login's sessions: the setting of the role in the
// database comes first, then that of the role, of the database, of the server.
func inForce(x inspect.LoginSetting, all []inspect.LoginSetting) bool {
	rank := func(s inspect.LoginSetting) int {
		return queue.Choose(s.Server, 0, 1) + queue.Choose(s.Role.Empty(), 0, 2) + queue.Choose(s.Database.Empty(), 0, 1)
	}
	return x.Mine && !slices.ContainsFunc(all, func(s inspect.LoginSetting) bool { return s.Mine && s.Name == x.Name && rank(s) > rank(x) })
}

// shownLogins is the greatest number of lines about logins that the doctor
// prints.
const shownLogins = 20

// settingFinding judges one setting of a role or of the database. For a
// harmless setting it returns a finding without Check. search_path,
// client_encoding and the isolation level are harmless to qtop's own sessions,
// which set their own.
func settingFinding(x inspect.LoginSetting, mayAct, readOnly bool) finding {
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
		if on, _ := truth(value); on {
			// the setting of the role in the database comes first, then that of the role, of the database, of the server
			bad := x.Mine && mayAct && readOnly
			return finding{queue.Choose(bad, "bad", "note"), "read-only", queue.Clean(says + ": nothing can be changed" +
				queue.Choose(x.Mine && !bad, ", except where a stronger setting is off", "")), reset}
		}
	case "session_replication_role":
		if value != "origin" {
			return finding{"bad", "triggers", queue.Clean(says + ": triggers do not run, so nothing is counted, audited or kept from change"), reset}
		}
	case "search_path":
		return finding{"note", "path", queue.Clean(says + ": qtop sets its own; other programs of the login find what is first in that path"), reset}
	case "client_encoding":
		if strings.ReplaceAll(value, "-", "") != "utf8" && value != "unicode" {
			return finding{"note", "encoding", queue.Clean(says + ": qtop speaks UTF-8; other programs of the login may not"), reset}
		}
	case "default_transaction_isolation":
		if value != "read committed" && value != "read uncommitted" {
			return finding{"note", "isolation", queue.Clean(says + ": behind a pooler statements of qtop fail with SQLSTATE 40001 under load"), reset}
		}
	}
	if hurts := settingHurts(x.Name, value); hurts != "" {
		switch {
		case strings.HasPrefix(x.Name, "auto_explain."):
			reset = "auto_explain.log_parameter_max_length = 0 in the configuration of the server, or " + reset
		case strings.Contains(hurts, bindsAppear):
			reset = "log_parameter_max_length = 0 in the configuration of the server, or " + reset
		}
		return finding{queue.Choose(x.Name == "zero_damaged_pages" || x.Name == "ignore_system_indexes", "bad", "note"), "setting", queue.Clean(says + ": " + hurts), reset}
	}
	return finding{}
}

// shortest is the shortest time limit that is harmless: a lower one would also
// end statements that are merely slow.
const shortest = time.Minute

// bindsAppear is the harm of settings that log statements with what is bound to them.
const bindsAppear = "payloads appear in the log of the server, also those that producers bind"

// settingHurts describes the harm that a setting does to the queue; "" if it
// does none. Hosts and consoles set limits for their own statements; the
// statements of producers have the limits of their logins.
func settingHurts(name, value string) string {
	on, known := truth(value)
	off := known && !on
	limit, ok := milliseconds(value)
	short := ok && limit > 0 && limit < shortest
	switch name {
	case "role":
		if value != "none" {
			return "what qtop and other programs of the login do has the rights of that role, not those of the login"
		}
	case "statement_timeout", "transaction_timeout":
		if short {
			return "what takes longer is cut off, also an enqueue of many jobs, a look at a large table or migrate behind a pooler"
		}
	case "lock_timeout":
		if ok && limit > 0 && limit < time.Second {
			return "a producer that waits for another one of the same key fails"
		}
	case "idle_session_timeout":
		if ok && limit > 0 {
			return "idle connections of hosts, consoles and LISTEN are cut again and again, and wake-ups are missed meanwhile"
		}
	case "idle_in_transaction_session_timeout":
		if ok && limit == 0 {
			return "" // the default is harmless enough: the console shows a forgotten transaction as HELD
		}
		if ok && limit < time.Second {
			return "transactions of producers end while they work"
		}
	case "synchronous_commit":
		if off {
			return "a crash of the server loses work that was acknowledged in the last moments"
		}
	case "fsync", "full_page_writes":
		if off {
			return "a crash of the machine can destroy the database"
		}
	case "autovacuum", "track_counts":
		if off {
			return "no dead row is removed: tables and claims get larger and slower without end"
		}
	case "track_activities":
		if off {
			return "nobody sees which session holds what"
		}
	case "plan_cache_mode":
		if value != "auto" {
			return "statements of lists and producers may get a plan that reads whole tables"
		}
	case "enable_indexscan", "enable_indexonlyscan", "enable_bitmapscan", "enable_nestloop", "enable_hashagg", "enable_hashjoin", "enable_sort", "enable_partition_pruning":
		if off {
			return "plans get slow where the queue is large"
		}
	case "log_statement":
		if value == "mod" || value == "all" {
			return "payloads that producers write appear in the log of the server"
		}
	case "log_min_duration_statement", "log_min_duration_sample", "auto_explain.log_min_duration":
		if ok {
			return bindsAppear + queue.Choose(limit > 0, ", with each statement that takes so long", "")
		}
	case "log_transaction_sample_rate":
		if rate, err := strconv.ParseFloat(strings.TrimSpace(value), 64); err == nil && rate > 0 {
			return bindsAppear + ", in that part of the transactions"
		}
	case "log_parameter_max_length_on_error":
		if strings.Trim(value, " 0bkmg") != "" {
			return "payloads that producers bind appear in the log of the server where a statement fails"
		}
	case "zero_damaged_pages", "ignore_system_indexes":
		if !off {
			return "for a repair alone: rows are lost, or everything is slow"
		}
	}
	return ""
}

// truth reads a boolean as PostgreSQL does, which stores it as it was written: on, yes, 1, also as t or fal.
func truth(value string) (on, ok bool) {
	switch {
	case value == "" || value == "o":
		return false, false
	case strings.HasPrefix("true", value), strings.HasPrefix("yes", value), value == "on", value == "1":
		return true, true
	case strings.HasPrefix("false", value), strings.HasPrefix("no", value), strings.HasPrefix("off", value), value == "0":
		return false, true
	}
	return false, false
}

// milliseconds reads a time limit as PostgreSQL does: 30s, 0.5 min, or a number of milliseconds.
func milliseconds(value string) (time.Duration, bool) {
	m := limitForm.FindStringSubmatch(value)
	if m == nil {
		return 0, false
	}
	n, err := strconv.ParseFloat(m[1], 64)
	unit := map[string]time.Duration{"": time.Millisecond, "us": time.Microsecond, "ms": time.Millisecond, "s": time.Second, "min": time.Minute, "h": time.Hour, "d": 24 * time.Hour}[m[2]]
	return time.Duration(n * float64(unit)), err == nil && n < 1<<31
}

var limitForm = regexp.MustCompile(`^\s*(\d+\.?\d*|\.\d+)\s*(us|ms|s|min|h|d|)\s*$`)

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

// wideFindings lists the rights of a login that its work with qtop does not
// need.
func wideFindings(l inspect.Login) []finding {
	var out []finding
	if slices.Contains(l.Attributes, "SUPERUSER") {
		whose := queue.Choose(l.Mine, "this login", "the login "+l.Name.String())
		out = append(out, finding{"note", "superuser", queue.Clean(whose + " is a superuser: no right is checked, and what it runs may do anything on the server"),
			"give hosts and people separate logins with the roles that they need"})
	} else if extra := slices.DeleteFunc(slices.Clone(l.Attributes), func(a string) bool { return a == "CREATEROLE" && l.Migrates }); len(extra) > 0 {
		out = append(out, finding{"note", "wide login", queue.Clean(l.Name.String() + " has " + strings.Join(extra, ", ") + ", which its work with qtop does not need"),
			"ALTER ROLE " + l.Quoted.String() + " NO" + strings.Join(extra, " NO")})
	}
	if len(l.Predefined) > 0 {
		roles := strings.Join(l.Predefined, ", ")
		out = append(out, finding{"note", "wide login", queue.Clean(l.Name.String() + " is a member of " + roles + ": the roles of qtop do not limit what it reads or changes"),
			"REVOKE " + roles + " FROM " + l.Quoted.String() + ", or from the group through which it has it"})
	}
	if !l.Until.Empty() {
		out = append(out, finding{"note", "password", queue.Clean("the password of " + l.Name.String() + queue.Choose(l.Ended, " ended ", " ends ") + l.Until.String() + ": the server then refuses new connections with it"),
			"ALTER ROLE " + l.Quoted.String() + " VALID UNTIL 'infinity', or give it a new password and a later end"})
	}
	if len(l.Hands) > 0 && !l.Migrates && !slices.Contains(l.Attributes, "CREATEROLE") {
		roles := strings.Join(l.Hands, ", ")
		out = append(out, finding{"note", "wide login", queue.Clean(l.Name.String() + " may give others " + roles + " (ADMIN OPTION)"),
			"REVOKE ADMIN OPTION FOR " + roles + " FROM " + l.Quoted.String() + ", or from the group through which it has it"})
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
	if slices.Contains(administers, "queue_owner") && !l.Migrates {
		out = append(out, finding{"note", "wide login", queue.Clean(l.Name.String() + " is a member of " + l.Owner.String() + ": it may change every table and function of qtop"),
			"only the login that runs qtop migrate needs it: REVOKE " + l.Owner.String() + " FROM the others"})
	}
	if len(works) > 0 && len(administers) > 0 {
		out = append(out, finding{"note", "wide login", queue.Clean(l.Name.String() + " works (" + strings.Join(works, ", ") + ") and administers (" + strings.Join(administers, ", ") + ")"),
			"use a separate login for each: anyone who takes over a host is an operator too"})
	}
	return out
}
