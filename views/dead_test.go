package views

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/queue"
)

// However narrow the screen, no two groups have the same name.
func TestGroupNames(t *testing.T) {
	g := func(source, code, endpoint, domain string, sub int64) queue.DeadGroup {
		return queue.DeadGroup{Source: source, Code: queue.Clean(code), Endpoint: queue.Clean(endpoint), Domain: queue.Clean(domain), SubscriptionID: sub}
	}
	require.Equal(t, []string{"reindex in kg", "reindex in mail", "reindex", "hooks.acme #7", "hooks.acme #8", "hooks.acme"}, GroupNames([]queue.DeadGroup{
		g("job", "TIMEOUT", "reindex", "kg", 0), g("job", "TIMEOUT", "reindex", "mail", 0), g("job", "EXIT_1", "reindex", "kg", 0),
		g("webhook", "HTTP_503", "hooks.acme", "webhook", 7), g("webhook", "HTTP_503", "hooks.acme", "webhook", 8), g("webhook", "HTTP_410", "hooks.acme", "webhook", 7),
	}))
}

// The columns of a list with several sources do not depend on which of them is first: otherwise they
// would be in another order after each new dead letter. Each id has room.
func TestColumnsOfMixedDeadLetters(t *testing.T) {
	hook, job := queue.DeadLetter{ID: "7", Source: "webhook"}, queue.DeadLetter{ID: "job:7", Source: "job"}
	event := queue.DeadLetter{ID: "event:7", Source: "event"}
	columns := DeadLetters([]queue.DeadLetter{hook, job, event}).Columns
	for _, rows := range [][]queue.DeadLetter{{job, hook, event}, {event, hook, job}, {hook, event}, {event}} {
		require.Equal(t, columns, DeadLetters(rows).Columns)
	}
	require.Equal(t, len("event:")+shortLen, columns[0].Width)
	require.Equal(t, DeadLetters(nil).Columns, DeadLetters([]queue.DeadLetter{hook, hook}).Columns)
}
