package pgerror_test

import (
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/pgerror"
	"github.com/qtop/qtop/pgclient/queue"
)

// The refusal of a value names it as the operator does, not by a parameter of a function. A value that
// looks like one stays as it is, its flag is the place, and so does an error that the server did not send.
func TestRefusalsNameNoParameters(t *testing.T) {
	t.Parallel()
	for message, want := range map[string]string{
		"p_payload must be a JSON object":                              "the payload must be a JSON object: say why in the reason",
		"role 'p_bob' does not exist: p_owner_role must name the host": "role 'p_bob' does not exist: the owner role must name the host (--owner-role): say why in the reason",
		"p_domain_scope 'KG' must match ^[a-z]":                        "the domain 'KG' must match ^[a-z] (--domains): say why in the reason",
		"p_event_domain must match ^[a-z] or be null":                  "the event domain must match ^[a-z] or be left out: say why in the reason", // a verb without --domain
		"p_recipient_ref must be role:NAME":                            "the recipient must be role:NAME (RECIPIENT): say why in the reason",
		"p_actor must name a person":                                   "the actor must name a person (--actor): say why in the reason",
		"p_owner_role and p_domain_scope must together have 9 bytes":   "the owner role and the domain must together have 9 bytes: say why in the reason",
		`invalid input syntax for type uuid: "p_id"`:                   `invalid input syntax for type uuid: "p_id" (SQLSTATE 22023): say why in the reason`,
	} {
		err := pgerror.InWords(pgerror.Translate(&pgconn.PgError{Code: "22023", Message: message, Hint: "say why in p_reason"}),
			queue.Arg{Name: "owner-role"}, queue.Arg{Name: "domains"}, queue.Arg{Name: "recipient", Positional: true})
		require.EqualError(t, err, want)
	}
	require.EqualError(t, pgerror.InWords(pgerror.Translate(&pgconn.PgError{Code: "22023", Message: "the list has no id", Routine: "exec_stmt_raise"})), "the list has no id")
	require.EqualError(t, pgerror.JobCheck(&pgconn.PgError{Code: "22023", Message: "p_job_kind must match ^[a-z]"}), "the job kind must match ^[a-z] (--kind)")
	require.EqualError(t, pgerror.InWords(queue.NewError(queue.KindUsage, "there is no tick worker p_x", "", "")), "there is no tick worker p_x")
}
