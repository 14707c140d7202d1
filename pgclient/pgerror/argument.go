package pgerror

import (
	"errors"
	"fmt"
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
		"p_priority_floor": "--floor", "p_max_parallel": "--parallel",
	}[argument]
	return &queue.Error{Kind: queue.KindUsage, What: queue.Clean(pg.Message), Where: queue.Clean(flag), Do: queue.Clean(pg.Hint), Err: err}
}

// NotExecutorKind returns a usage error for a kind that is not one of queue.ExecutorKinds.
func NotExecutorKind(kind, where string) error {
	return queue.NewError(queue.KindUsage, fmt.Sprintf("%q is not an executor kind", kind), where, "use "+strings.Join(queue.ExecutorKinds(), ", "))
}
