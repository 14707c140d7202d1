package schema

import (
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/qtop/qtop/pgclient/queue"
)

// owner is the role that owns every object; no login uses it.
const owner = "queue_owner"

// Roles are the group roles that the schema grants rights to, without its owner.
func Roles() []string {
	return []string{
		"queue_viewer", "dot_executor", "workflow_admin", "dead_letter_operator", "event_ingest_writer",
		"router_worker", "saga_orchestrator", "webhook_worker", "lease_reset_cleaner", "subscription_admin",
	}
}

// vocabulary returns the lists of words that several tables and functions accept or refuse, by
// name.
func vocabulary() map[string][]string {
	return map[string][]string{
		"executor_kinds": queue.ExecutorKinds(),
		"denied_keys": {
			"body", "content", "raw", "vector", "embedding", "secret", "token", "password", "ssn", "personal_data",
		},
	}
}

// expand replaces the placeholders of SQL text, which are written like variables of
// psql:
//
//	:"queue_viewer"    the role, as an identifier
//	:'queue_owner'     the role's name, as a literal; both with the prefix of the set
//	:denied_keys       a list of literals: 'body', 'content', …
//	:'denied_keys'     an array literal: '{body,content,…}'
//
// A name in quotes that is neither a role nor a list is an error. A colon after another colon, as
// in ::text, or after a quote, as in '{"a":"b"}', does not begin a placeholder. expand uses no
// regular expressions, because every program loads half a megabyte of SQL when it starts.
func expand(text string, set roleSet) (string, error) {
	lists, roles := vocabulary(), append(Roles(), owner)
	var b strings.Builder
	from := 0 // text[:from] is already written to b
	for {
		step := strings.IndexByte(text[from:], ':')
		if step < 0 || from+step == len(text)-1 {
			b.WriteString(text[from:])
			return b.String(), nil
		}
		at := from + step
		b.WriteString(text[from:at])
		from = at
		if at > 0 && (text[at-1] == ':' || text[at-1] == '"' || isWord(text[at-1])) {
			b.WriteByte(':')
			from++
			continue
		}
		rest, quote := text[at+1:], ""
		if rest[0] == '"' || rest[0] == '\'' {
			quote = rest[:1]
		}
		name := word(rest[len(quote):])
		behind := rest[len(quote)+len(name):]
		switch {
		case name == "" || !strings.HasPrefix(behind, quote) || quote == "" && lists[name] == nil:
			b.WriteByte(':')
			from++
			continue
		case quote == "":
			b.WriteString("'" + strings.Join(lists[name], "', '") + "'")
		case quote == "'" && lists[name] != nil:
			b.WriteString("'{" + strings.Join(lists[name], ",") + "}'")
		case quote == "'" && slices.Contains(roles, name):
			b.WriteString("'" + strings.ReplaceAll(set.named(name), "'", "''") + "'")
		case quote == `"` && slices.Contains(roles, name):
			b.WriteString(pgx.Identifier{set.named(name)}.Sanitize())
		default:
			return "", fmt.Errorf("placeholder :%s%s%s names no role and no list", quote, name, quote)
		}
		from += 1 + len(quote) + len(name) + len(quote)
	}
}

func isWord(c byte) bool {
	return c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}

// word returns the word characters at the start of s: A-Z, a-z, 0-9 and underscores.
func word(s string) string {
	for i := range len(s) {
		if !isWord(s[i]) {
			return s[:i]
		}
	}
	return s
}
