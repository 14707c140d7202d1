package pgclient_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/queue"
)

// One group per waiting row is the worst case for pane gn: a query that compares every group with
// every other one would exceed the deadline of a read.
func TestManyGroupsAreRead(t *testing.T) {
	w := newWorld(t)
	w.exec(`INSERT INTO public.iu_notification_pending (unit_id, canonical_address, source_document_ref, actor_ref, ref_id, created_at)
		SELECT gen_random_uuid(), 'piece ' || i, 'document ' || i, 'user:ann', gen_random_uuid(), now() - interval '1 hour' + i * interval '1 millisecond'
		FROM generate_series(1, 20000) i`)
	w.exec(`INSERT INTO public.iu_notification_pending (unit_id, canonical_address, source_document_ref, actor_ref, ref_id, created_at)
		VALUES (gen_random_uuid(), 'first', NULL, 'user:bob', gen_random_uuid(), now() - interval '3 hours'),
			(gen_random_uuid(), 'second', NULL, 'user:ann', gen_random_uuid(), now() - interval '2 hours')`)
	p, err := w.client("queue_viewer").List(context.Background(), queue.Query{Kind: queue.ListNotify, Limit: 3})
	require.NoError(t, err)
	n := queue.Of[*queue.Notifications](p)
	require.EqualValues(t, 20_002, n.Waiting)
	require.Len(t, n.Groups, 3)
	require.True(t, n.GroupsBound)
	g := n.Groups[0]
	require.False(t, g.Keyed)
	require.EqualValues(t, 2, g.Pieces)
	require.Equal(t, "first by user:bob", g.FirstUnit.String()+" by "+g.Actor.String(), "the oldest piece is named")
	g = n.Groups[1]
	require.True(t, g.Keyed && g.Document)
	require.Equal(t, "document 1: piece 1", g.Key.String()+": "+g.FirstUnit.String())
}
