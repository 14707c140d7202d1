package parseid

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// However an id is typed, the audit names its row in one form.
func TestPayloadHasOneForm(t *testing.T) {
	const id = "0190a1b2-1111-4222-8333-0123456789ab"
	for typed, want := range map[string][2]string{
		"7": {"dead_letter", "7"}, " 007 ": {"dead_letter", "7"}, "+7": {"dead_letter", "7"},
		"0190A1B2-1111-4222-8333-0123456789AB": {"job", id}, "job:0190A1B2-1111-4222-8333-0123456789AB": {"job_dead_letter", id}, "event:" + id: {"event_dead_letter", id},
	} {
		kind, key, err := Payload(typed)
		require.NoError(t, err, typed)
		require.Equal(t, want, [2]string{kind, key}, typed)
	}
	_, _, err := Payload("x")
	require.Error(t, err)
}
