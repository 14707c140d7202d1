package pgerror

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/qtop/qtop/pgclient/queue"
)

// JobCheck turns the refusal of a function that enqueues a job into a usage error that names the flag
// whose value was refused.
func JobCheck(err error) error {
	var flags []queue.Arg
	for _, name := range []string{"kind", "domain", "executor", "payload", "priority", "max-attempts", "key", "scope"} {
		flags = append(flags, queue.Arg{Name: name})
	}
	return InWords(Translate(err), flags...)
}

// inWords returns the name of the argument in which an operator gives the value of a parameter, and the
// words for it in a sentence.
func inWords(parameter string) (argument, words string) {
	said := map[string][2]string{ // "" = as the parameter says
		"p_callback_url": {"url", "the URL"}, "p_recipient_ref": {"recipient", "the recipient"}, "p_secret_ref": {"secret", "--secret"}, "p_unsigned": {"", "--unsigned"},
		"p_domain_scope": {"domains", "the domain"}, "p_expected_cadence_seconds": {"cadence", "the cadence"}, "p_stale_threshold_seconds": {"stale-after", "the stale threshold"},
		"p_scope_filter": {"payload", "the payload"}, "p_scope_subject_table": {"table", "the subject table"},
		"p_event_domain": {"domain"}, "p_event_type": {"type"}, "p_event_types": {"types"}, "p_event_stream": {"stream"}, "p_job_kind": {"kind"}, "p_idempotency_key": {"key"},
		"p_priority_floor": {"floor"}, "p_max_parallel": {"parallel"}, "p_executor_id": {"id"}, "p_producer_role": {"role"}, "p_delivery_lane": {"lane"}, "p_worker_name": {"worker"}, "p_ttl": {"for"},
	}[parameter]
	return cmp.Or(said[0], strings.ReplaceAll(parameter[2:], "_", "-")), cmp.Or(said[1], "the "+strings.ReplaceAll(parameter[2:], "_", " "))
}

var (
	// parameter matches the name of a parameter of a function of the schema, or a value in quotes, which may
	// look like one.
	parameter = regexp.MustCompile(`'[^']*'|"[^"]*"|\bp_[a-z_]+`)
	// several matches the names of parameters of which none alone is wrong.
	several = regexp.MustCompile(`^p_[a-z_]+(?:, | and )p_`)
)

// InWords puts words that an operator knows in place of the parameters that the server names where
// it refuses a value. args are the arguments that the operator can give: the one that is refused becomes
// the place of the error.
func InWords(err error, args ...queue.Arg) error {
	var refusal *queue.Error
	var pg *pgconn.PgError
	if !errors.As(err, &refusal) || refusal.Kind != queue.KindUsage || !errors.As(err, &pg) {
		return err
	}
	words := func(of queue.Text) queue.Text {
		return queue.Clean(strings.ReplaceAll(parameter.ReplaceAllStringFunc(of.String(), func(p string) string {
			if !strings.HasPrefix(p, "p_") {
				return p
			}
			_, words := inWords(p)
			return words
		}), " or be null", " or be left out"))
	}
	said := *refusal
	said.What, said.Do = words(refusal.What), words(refusal.Do)
	if !strings.HasPrefix(said.Where.String(), "SQLSTATE ") {
		return &said
	}
	if pg.Routine == "exec_stmt_raise" || said.What.String() != refusal.What.String() { // raised by a function of qtop
		said.Where = place(refusal.What.String(), append(args, queue.Arg{Name: "actor"}, queue.Arg{Name: "reason"}))
	}
	return &said
}

// place returns the argument whose parameter a refusal names first; empty: it names none, several of which
// none alone is wrong, or one that is no argument.
func place(refusal string, args []queue.Arg) queue.Text {
	for _, at := range parameter.FindAllStringIndex(refusal, -1) {
		if name := refusal[at[0]:at[1]]; strings.HasPrefix(name, "p_") {
			argument, _ := inWords(name)
			i := slices.IndexFunc(args, func(a queue.Arg) bool { return a.Name == argument })
			if i < 0 || several.MatchString(refusal[at[0]:]) {
				return queue.Text{}
			}
			return queue.Clean(args[i].Where())
		}
	}
	return queue.Text{}
}

// NotExecutorKind returns a usage error for a kind that is not one of queue.ExecutorKinds.
func NotExecutorKind(kind, where string) error {
	return queue.NewError(queue.KindUsage, fmt.Sprintf("%q is not an executor kind", kind), where, "use "+strings.Join(queue.ExecutorKinds(), ", "))
}
