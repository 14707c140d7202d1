package enqueue

import (
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/work"
)

// Jobs that come all the time and are claimed within 5 ms ring no bell; one that is not does, once.
func TestBellOfOwedJobs(t *testing.T) {
	r := NewRinger(nil)
	b := &bell{}
	r.rung["iu"] = b // as while it rings
	wanted := func(now, later bool, what string) {
		t.Helper()
		gotNow, gotLater := r.wanted("iu", b)
		require.Equal(t, [2]bool{now, later}, [2]bool{gotNow, gotLater}, what)
	}
	owe := func() work.Job {
		id := uuid.New()
		r.owe("iu", id.String())
		return work.Job{ID: pgtype.UUID{Bytes: id, Valid: true}, Domain: "iu"}
	}
	var young []work.Job
	for range 5 {
		r.claimed(young)
		young = []work.Job{owe(), owe()}
		wanted(false, true, "claimed before they were due")
	}
	r.claimed(young[:1])
	wanted(true, false, "one is due")
	require.Contains(t, r.rung, "iu")
	wanted(false, false, "nothing more")
	require.NotContains(t, r.rung, "iu")

	b = &bell{}
	r.rung["iu"] = b
	late := owe()
	b.again = true
	wanted(true, true, "it rings for what is owed as well")
	wanted(false, false, "and not again")
	r.claimed([]work.Job{late})
}
