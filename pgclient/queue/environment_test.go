package queue_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/queue"
)

// The name that must be typed depends on the flag of the database and on the profile.
func TestGuard(t *testing.T) {
	for _, c := range []struct {
		value      string
		production bool
		want       string
	}{
		{"unset", false, ""}, {"unset", true, "app"}, {"", false, ""}, {"", true, "app"},
		{"prod guarded", false, "prod"}, {"prod guarded", true, "prod"},
		{"staging open", false, ""}, {"staging open", true, "staging"},
		{"prod  guarded", false, "prod"}, {" prod guarded", false, "prod"}, {"production ", false, "production"}, // blanks at the edge cannot be typed
		{"production", false, "production"}, {"prod opened", false, "prod opened"}, // a value that a person wrote with a mistake
	} {
		require.Equal(t, c.want, queue.ReadEnvironment("app", c.value).Guard(c.production), "%+v", c)
	}
	require.Equal(t, "production", queue.ReadEnvironment("", "unset").Guard(true), "never nothing")
}
