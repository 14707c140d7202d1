package main

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/pgtest"
)

// Without a question, a recount compares the counters with the tables once, and says what it found.
func TestRecountWithoutQuestionComparesOnce(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	conn := db.Conn(t, "")
	_, err := conn.Exec(t.Context(), `ALTER FUNCTION public.fn_queue_recount(text, text, boolean) RENAME TO fn_recount_within;
		CREATE TABLE public.asked (dry boolean);
		CREATE FUNCTION public.fn_queue_recount(p_actor text, p_reason text, p_dry_run boolean) RETURNS jsonb LANGUAGE plpgsql SECURITY DEFINER AS $$
		BEGIN
			INSERT INTO public.asked VALUES (p_dry_run);
			RETURN public.fn_recount_within(p_actor, p_reason, p_dry_run);
		END $$;
		GRANT EXECUTE ON FUNCTION public.fn_queue_recount(text, text, boolean) TO workflow_admin`)
	require.NoError(t, err)
	out, err := qtop(t, db.DSN(pgtest.Login(t, db, "queue_viewer", "workflow_admin")), "recount", "--reason", "r", "--yes", "-o", "json").Output()
	require.NoError(t, err)
	var said struct {
		Plan []struct{ Label, Value string } `json:"plan"`
	}
	require.NoError(t, json.Unmarshal(out, &said), "%s", out)
	require.Len(t, said.Plan, 2)
	require.Equal(t, "0 differ from the tables", said.Plan[0].Value)
	var asked []bool
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT array_agg(dry) FROM public.asked").Scan(&asked))
	require.Equal(t, []bool{false}, asked)
}
