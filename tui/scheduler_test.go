package tui

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/queue"
)

// Pane 9 lists late tick workers first. Its action keys work on the row under
// the cursor: T runs the tick worker now, E sets its interval or the scheduler
// mode, P pauses a running worker and resumes a paused one.
func TestSchedulerKeys(t *testing.T) {
	for _, c := range []struct {
		down   int
		keys   []string
		says   []string
		action queue.ActionID
		on     []string
		args   map[string]string
	}{
		{0, []string{"T"}, []string{"Tick", "metrics_sampler"}, queue.ActTick, []string{"metrics_sampler"}, map[string]string{"worker": "metrics_sampler"}},
		{0, []string{"P"}, []string{"Pause", "For", "30m"}, queue.ActTickPause, []string{"metrics_sampler"}, map[string]string{"for": "30m"}},
		{3, []string{"P"}, []string{"Resume"}, queue.ActTickResume, []string{"lease_reset_cleaner"}, map[string]string{}},
		{4, []string{"P"}, []string{"Pause"}, queue.ActTickPause, []string{"webhook_worker"}, map[string]string{"for": "30m"}},
		{7, []string{"E"}, []string{"Set", "queue.scheduler.mode", "hybrid"}, queue.ActFlagSet, []string{"queue.scheduler.mode"}, map[string]string{"value": "hybrid", "for": ""}},
		{7, []string{"enter", "E"}, []string{"Set", "queue.scheduler.mode"}, queue.ActFlagSet, []string{"queue.scheduler.mode"}, map[string]string{"value": "hybrid", "for": ""}},
		{0, []string{"enter", "T"}, []string{"Tick", "metrics_sampler"}, queue.ActTick, []string{"metrics_sampler"}, map[string]string{"worker": "metrics_sampler"}},
	} {
		s := newStore()
		run(t, setup{store: s, w: 120, h: 40}, func(x *console) {
			x.press("9")
			x.sees("SCHEDULER MODE", "metrics_sampler", "FAILED", "never", "PAUSED", "1 of 2 installed")
			for range c.down {
				x.press("j")
			}
			x.press(c.keys...)
			x.sees(c.says...)
			if c.action != queue.ActTick { // the focus starts on the first required input that is empty
				x.typing("looked at by hand")
			}
			x.press("enter")
			x.rest(quiet)
			got := last(s.asked())
			require.Equal(t, c.action, got.Action)
			require.Equal(t, c.on, got.Targets)
			require.Equal(t, c.args, got.Args)
			require.Empty(t, s.did(), "nothing happens without a confirm")
		})
	}
}

func TestSchedulerInterval(t *testing.T) {
	s := newStore()
	s.snap.Flags = append(s.snap.Flags, queue.Flag{Key: queue.Clean("queue.tick.metrics_sampler.interval_seconds"), Value: queue.Clean("60"), Kind: "integer"})
	run(t, setup{store: s, w: 120, h: 40}, func(x *console) {
		x.press("9", "E")
		x.sees("Set a flag", "queue.tick.metrics_sampler.interval_seconds", "now     60")
	})
}

// A key that does not work here says why. The row of the scheduler mode is no
// worker that could be run or paused.
func TestSchedulerSaysWhyNot(t *testing.T) {
	run(t, setup{w: 120, h: 40}, func(x *console) {
		x.press("9", "G", "T")
		x.sees("T needs a tick worker")
		x.press("P")
		x.sees("P needs a tick worker")
	})
	s := newStore()
	s.session.Rights[queue.ActTick], s.session.Rights[queue.ActTickPause] = false, false
	s.session.Needs[queue.ActTick] = "workflow_admin"
	run(t, setup{store: s, w: 120, h: 40}, func(x *console) {
		x.press("9", "T")
		x.sees("Tick is off", "workflow_admin")
	})
}

// The page of a tick worker shows the changes of its interval; the page of the
// scheduler mode shows the jobs of pg_cron.
func TestSchedulerPages(t *testing.T) {
	s := newStore()
	run(t, setup{store: s, w: 120, h: 40}, func(x *console) {
		x.press("9", "enter")
		x.sees("Last result in full", "permission denied for table", "Changes of its interval", "last attempt")
		require.Equal(t, queue.Query{Kind: queue.ListFlagHistory, ID: "queue.tick.metrics_sampler.interval_seconds", Limit: 200}, last(s.lists))
		x.press("esc", "G", "enter")
		x.sees("GRANT USAGE ON SCHEMA cron", "queue_lease_reaper", "GONE", "FAILED", "connection failed", "queue_ops")
		x.press("esc", "/")
		x.typing("state:off")
		x.press("enter")
		x.sees("lease_reset_cleaner", "webhook_worker")
		x.seesNot("metrics_sampler")
	})
}

// The command line offers the verbs of the scheduler and completes the names of
// the workers.
func TestSchedulerCommands(t *testing.T) {
	s := newStore()
	run(t, setup{store: s, w: 120, h: 40}, func(x *console) {
		x.press(":")
		x.typing("scheduler pause iu")
		x.press("tab")
		x.sees("scheduler pause iu_outbound_default")
		x.press("enter")
		x.sees("Pause", "For", "Reason")
		x.press("esc", ":")
		x.typing("scheduler install")
		x.press("enter")
		x.sees("Install", "Reason")
		x.press("esc", ":")
		x.typing("scheduler")
		x.press("enter")
		x.sees("SCHEDULER MODE")
	})
}
