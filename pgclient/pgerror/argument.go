package pgerror

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/qtop/qtop/pgclient/queue"
)

// JobCheck turns the refusal of a function for jobs or job subscriptions into a usage error that
// names the flag whose value was refused.
func JobCheck(err error) error {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) || pg.Code != "22023" {
		return err
	}
	argument, _, _ := strings.Cut(pg.Message, " ")
	flag := map[string]string{
		"p_job_kind": "--kind", "p_event_domain": "--domain", "p_payload": "--payload", "p_max_attempts": "--max-attempts", "p_idempotency_key": "--key",
		"p_priority_floor": "--floor", "p_max_parallel": "--parallel", "p_actor": "--actor",
	}[argument]
	return InWords(&queue.Error{Kind: queue.KindUsage, What: queue.Clean(pg.Message), Where: queue.Clean(flag), Do: queue.Clean(pg.Hint), Err: err})
}

// parameter matches the name of a parameter of a function of the schema, or a value in quotes, which may
// look like one.
var parameter = regexp.MustCompile(`'[^']*'|"[^"]*"|\bp_[a-z_]+`)

// InWords puts words that an operator knows in place of the parameters that the server names where
// it refuses a value.
func InWords(err error) error {
	var refusal *queue.Error
	var pg *pgconn.PgError
	if !errors.As(err, &refusal) || refusal.Kind != queue.KindUsage || !errors.As(err, &pg) {
		return err
	}
	words := func(of queue.Text) queue.Text {
		return queue.Clean(parameter.ReplaceAllStringFunc(of.String(), func(p string) string {
			switch p {
			case "p_callback_url":
				return "the URL"
			case "p_recipient_ref":
				return "the recipient"
			case "p_secret_ref", "p_unsigned":
				return "--" + strings.TrimSuffix(p[2:], "_ref")
			}
			if !strings.HasPrefix(p, "p_") {
				return p
			}
			return "the " + strings.ReplaceAll(p[2:], "_", " ")
		}))
	}
	said := *refusal
	said.What, said.Do = words(refusal.What), words(refusal.Do)
	if said.What.String() != refusal.What.String() && strings.HasPrefix(said.Where.String(), "SQLSTATE ") {
		said.Where = queue.Text{}
	}
	return &said
}

// NotExecutorKind returns a usage error for a kind that is not one of queue.ExecutorKinds.
func NotExecutorKind(kind, where string) error {
	return queue.NewError(queue.KindUsage, fmt.Sprintf("%q is not an executor kind", kind), where, "use "+strings.Join(queue.ExecutorKinds(), ", "))
}
