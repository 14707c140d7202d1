package schema_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A producer cannot give a job a priority or a time beyond the bounds.
func TestJobNumbersAndTimesAreBounded(t *testing.T) {
	c := newCore(t)
	producer := c.as("event_ingest_writer")
	const one = "SELECT public.fn_job_enqueue('k', 'iu', 'DOT', '{}', $1::int, $2::text::timestamptz, NULL, NULL, NULL)"
	const many = `SELECT public.fn_job_enqueue_many(jsonb_build_array(jsonb_build_object('job_kind', 'k', 'event_domain', 'iu', 'executor', 'DOT'),
		jsonb_build_object('job_kind', 'k', 'event_domain', 'iu', 'executor', 'DOT', 'priority', $1::int, 'process_after', $2::text)))`
	for _, sql := range []string{one, many} {
		for _, at := range []string{"infinity", "-infinity", "4713-01-01 BC", "294276-12-31", "10000-01-01"} {
			fails(t, producer, "22023", sql, 100, at)
		}
		for _, priority := range []int{-1, 1001, 2147483647, -2147483648} {
			fails(t, producer, "22023", sql, priority, "2020-01-01")
		}
		for _, priority := range []int{0, 1000} {
			_, err := producer.Exec(t.Context(), sql, priority, "0001-01-01Z")
			require.NoError(t, err)
		}
	}
	fails(t, producer, "22023", many, 100, "2020-01-01 and a bit")
	require.Equal(t, 6, get[int](c, "SELECT count(*) FROM public.job_queue"), "nothing of a batch that was refused")
}

// A lease duration that an older release accepted counts as the bound, so that a crash delays a job
// by a day, not by twelve; what is no number counts as the initial value. A claim from the beginning of
// its only queue lane reads the flag elsewhere than one that begins later.
func TestJobLeaseStoredBeyondItsBound(t *testing.T) {
	j := newJobs(t)
	j.jobSubscription("w", "", "", 0, 100)
	for value, want := range map[string]int{"0": 1, "7": 7, "1000000": 86400, "4000000000": 300, "many": 300, "": 300} {
		j.exec("UPDATE public.dot_config SET value = $1 WHERE key = 'queue.lease.duration_seconds'", value)
		for _, after := range []string{"NULL", "'{}'"} {
			j.exec("SELECT public.fn_job_enqueue('k', 'iu', 'external_worker')")
			before := get[time.Time](j.core, "SELECT clock_timestamp()")
			until := get[time.Time](j.core, "SELECT lease_until FROM public.fn_job_claim('w', NULL, 1, "+after+")")
			require.WithinRange(t, until, before.Add(time.Duration(want)*time.Second),
				get[time.Time](j.core, "SELECT clock_timestamp()").Add(time.Duration(want)*time.Second), "%s %s", value, after)
		}
	}
}

// The same holds for the default of the attempts of a job; what is no number counts as the initial value.
func TestJobAttemptsStoredBeyondTheirBound(t *testing.T) {
	c := newCore(t)
	for value, want := range map[string]int{"0": 1, "7": 7, "1000000": 1000, "4000000000": 20, "many": 20, "": 20} {
		c.exec("UPDATE public.dot_config SET value = $1 WHERE key = 'queue.retry.max_attempts_default'", value)
		c.exec("SELECT public.fn_job_enqueue('k', 'iu', 'DOT')")
		c.exec(`SELECT public.fn_job_enqueue_many('[{"job_kind": "k", "event_domain": "iu", "executor": "DOT"}]')`)
		require.Equal(t, []int{want, want}, get[[]int](c, "SELECT array_agg(max_attempts::int) FROM public.job_queue"), value)
		c.exec("SELECT public.fn_job_cancel(array_agg(job_id), 'ann', 'seen', false) FROM public.job_queue")
	}
}
