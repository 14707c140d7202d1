package schema

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/qtop/qtop/pgclient/queue"
)

// owner owns every object; nobody logs in as it.
const owner = "queue_owner"

// Roles are the group roles that the schema grants rights to, without its owner.
func Roles() []string {
	return []string{
		"queue_viewer", "dot_executor", "workflow_admin", "dead_letter_operator", "event_ingest_writer",
		"router_worker", "saga_orchestrator", "webhook_worker", "lease_reset_cleaner", "subscription_admin",
	}
}

// vocabulary is the lists of words that several tables and functions admit or refuse.
func vocabulary() map[string][]string {
	return map[string][]string{
		"executor_kinds": queue.ExecutorKinds(),
		"denied_keys": {
			"body", "content", "raw", "vector", "embedding", "secret", "token", "password", "ssn", "personal_data",
		},
	}
}

var placeholder = regexp.MustCompile(`(^|[^:\w]):(?:"(\w+)"|'(\w+)'|(executor_kinds|denied_keys)\b)`)

// expand replaces the placeholders of SQL text, which are written as psql writes
// its variables:
//
//	:"queue_viewer"    the role, as an identifier
//	:'queue_owner'     the role's name, as a literal
//	:denied_keys       a list of literals: 'body', 'content', …
//	:'denied_keys'     an array literal: '{body,content,…}'
//
// A name that is neither a role nor a list is an error.
func expand(text string) (string, error) {
	lists, roles := vocabulary(), append(Roles(), owner)
	var err error
	out := placeholder.ReplaceAllStringFunc(text, func(hit string) string {
		p := placeholder.FindStringSubmatch(hit)
		before, ident, literal, list := p[1], p[2], p[3], p[4]
		switch {
		case list != "":
			return before + "'" + strings.Join(lists[list], "', '") + "'"
		case literal != "" && lists[literal] != nil:
			return before + "'{" + strings.Join(lists[literal], ",") + "}'"
		case slices.Contains(roles, literal):
			return before + "'" + literal + "'"
		case slices.Contains(roles, ident):
			return before + pgx.Identifier{ident}.Sanitize()
		}
		err = fmt.Errorf("%s stands for nothing", strings.TrimPrefix(hit, before))
		return hit
	})
	return out, err
}
