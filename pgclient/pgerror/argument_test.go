package pgerror_test

import (
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/pgerror"
	"github.com/qtop/qtop/pgclient/queue"
)

// The refusal of a value names it as the operator does, not by a parameter of a function. A value that
// looks like one stays as it is, and so does an error that the server did not send.
func TestRefusalsNameNoParameters(t *testing.T) {
	t.Parallel()
	for message, want := range map[string]string{
		"p_payload must be a JSON object":                              "the payload must be a JSON object: say why in the reason",
		"role 'p_bob' does not exist: p_owner_role must name the host": "role 'p_bob' does not exist: the owner role must name the host: say why in the reason",
		`invalid input syntax for type uuid: "p_id"`:                   `invalid input syntax for type uuid: "p_id" (SQLSTATE 22023): say why in the reason`,
	} {
		err := pgerror.InWords(pgerror.Translate(&pgconn.PgError{Code: "22023", Message: message, Hint: "say why in p_reason"}))
		require.EqualError(t, err, want)
	}
	require.EqualError(t, pgerror.JobCheck(&pgconn.PgError{Code: "22023", Message: "p_job_kind must match ^[a-z]"}), "the job kind must match ^[a-z] (--kind)")
	require.EqualError(t, pgerror.InWords(queue.NewError(queue.KindUsage, "there is no tick worker p_x", "", "")), "there is no tick worker p_x")
}
