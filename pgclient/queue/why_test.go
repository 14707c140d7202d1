package queue

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The texts of the functions of older databases have the codes of today's texts.
func TestWhyCodeOfOlderDatabases(t *testing.T) {
	for now, before := range map[string]string{
		"no subscription of the endpoint may send now":                           "none of its subscriptions is open",
		"1 of 2 subscriptions are inactive or unverified":                        "1 of 2 subscriptions are not in use",
		"job_queue_default does not run: jobs that become due cannot be claimed": "job_queue_default does not run: what is due is not taken in",
	} {
		require.NotContains(t, []string{"", "other"}, WhyCode(before), before)
		require.Equal(t, WhyCode(before), WhyCode(now), now)
	}
}
