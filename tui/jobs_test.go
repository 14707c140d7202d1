package tui

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views/viewstest"
)

func last[T any](all []T) T { return all[len(all)-1] }

func TestLaneToJobToCancel(t *testing.T) {
	s := newStore()
	run(t, setup{store: s}, func(c *console) {
		c.press("8")
		c.sees("kg.reindex", "report.render", "STUCK LEASES", "JOB TABLE", "every subscribed executor is silent: codex_indexer")
		c.press("enter")
		c.sees("kg.reindex in kg", "lease expired", "40 of 1,216 rows")
		require.Equal(t, queue.Query{Kind: queue.ListJobs, ID: "kg/kg.reindex", Limit: pageRows}, last(s.listed()))

		c.press("enter") // for one job, no count must be typed
		c.sees("Job 01a1ffab-7790-7000-8000-48907d178d60", "expired 36m ago; L releases it", "Queues → kg.reindex in kg → job 8000-48907d178d60")
		require.Equal(t, queue.ListJob, last(s.listed()).Kind)
		c.press("C")
		c.sees("Cancel jobs", "Leave")
		c.typing("no longer wanted")
		c.press("enter")
		c.rest(quiet)
		c.sees("Keep", "Cancel 1 job", "cannot be undone")
		c.seesNot("How many")
		c.press("enter") // the safe button has the focus when the preview opens
		require.Empty(t, s.did())
		require.Equal(t, s.jobs[0].ID, last(s.asked()).Targets[0])

		c.press("esc", "space", "space", "j", "space")
		c.sees("3 selected")
		c.press("C")
		c.typing("no longer wanted")
		c.press("enter")
		c.rest(quiet)
		c.sees("Cancel 3 jobs", "type 3")
		require.Equal(t, []string{s.jobs[0].ID, s.jobs[1].ID, s.jobs[3].ID}, last(s.asked()).Targets)
		c.typing("4")
		c.press("tab", "tab", "enter")
		require.Empty(t, s.did(), "not the count")
		c.press("backspace")
		c.typing("3")
		c.press("enter", "tab", "enter")
		require.Len(t, s.did(), 1)
		require.Equal(t, queue.ActJobCancel, s.did()[0].Request.Action)
		c.rest(quiet)
		c.press("enter")
		c.seesNot("selected")
	})
}

// All jobs of a queue lane are cancelled by a filter, after their number was
// typed.
func TestCancelAWholeLane(t *testing.T) {
	s := newStore()
	run(t, setup{store: s}, func(c *console) {
		c.press("8", "C")
		c.typing("wrong import")
		c.press("enter")
		c.rest(quiet)
		require.Equal(t, "kind=kg.reindex domain=kg", last(s.asked()).Filter)
		require.Empty(t, last(s.asked()).Targets)
		c.sees("Cancel 1,216 jobs", "type 1216")
		c.press("tab", "tab", "enter")
		require.Empty(t, s.did())
		c.press("esc", "enter", "ctrl+a")
		c.sees("40 selected; ctrl+a again selects all 1,216 matching rows")
		c.press("ctrl+a", "C")
		c.typing("x")
		c.press("enter")
		c.rest(quiet)
		require.Equal(t, "kind=kg.reindex domain=kg", last(s.asked()).Filter)
		c.press("esc", "esc", "/")
		c.typing("status:retry_waiting")
		c.press("enter")
		require.Equal(t, "status:retry_waiting", last(s.listed()).Filter)
		require.Equal(t, "kg/kg.reindex", last(s.listed()).ID)
		c.rest(7 * time.Second) // longer than a message shows
		c.sees("4 rows")
		c.press("ctrl+a", "ctrl+a", "C")
		c.typing("x")
		c.press("enter")
		c.rest(quiet)
		require.Equal(t, "kind=kg.reindex domain=kg status:retry_waiting", last(s.asked()).Filter)
		f, err := queue.ParseFilter(last(s.asked()).Filter, queue.JobFields())
		require.NoError(t, err)
		require.Len(t, f.Terms, 3)
	})
}

func TestLaneFilterIsReadBack(t *testing.T) {
	for _, bad := range append(viewstest.Hostile(), `a b`, `x|y`, `"`, `\`, `*`) {
		l := queue.Lane{Kind: queue.Clean(bad), Domain: queue.Clean(bad)}
		text := queue.LaneFilter(l.Kind.String(), l.Domain.String(), "")
		if len(text) > 8000 {
			continue // a filter has a maximum length, and a longer one is refused
		}
		f, err := queue.ParseFilter(text, queue.JobFields())
		require.NoError(t, err, text)
		is := func(kind string) func(string) (any, bool) {
			return func(field string) (any, bool) {
				return map[string]any{"kind": kind, "domain": l.Domain.String()}[field], true
			}
		}
		require.True(t, f.Match(is(l.Kind.String()), time.Now()), text)
		require.False(t, f.Match(is(l.Kind.String()+"x"), time.Now()), text)
	}
}

func TestReleaseLeases(t *testing.T) {
	s := newStore()
	token := func(i int) string { return s.snap.JobLeases[i].ID }
	run(t, setup{store: s}, func(c *console) {
		c.press("8", "L")
		c.sees("L needs a row under STUCK LEASES")
		c.press("space")
		c.sees("only rows under STUCK LEASES can be selected; jobs of a lane after enter")
		require.Zero(t, c.overlays())
		c.press("G", "C")
		c.sees("C needs a lane under the cursor")
		require.Zero(t, c.overlays())
		c.press("k", "k")
		c.sees("expired 36m ago", "3f2a9484-1111")
		c.press("L")
		c.typing("codex is down")
		c.press("enter")
		c.rest(quiet)
		c.sees("Release leases", "Release 1 lease")
		require.Equal(t, []string{token(0)}, last(s.asked()).Targets)
		c.press("esc", "space", "space", "L")
		c.typing("codex is down")
		c.press("enter")
		c.rest(quiet)
		c.sees("Release 2 leases", "type 2")
		require.Equal(t, []string{token(0), token(1)}, last(s.asked()).Targets)
		c.press("esc")
		c.press("ctrl+a", "ctrl+a")
		c.sees("3 selected")
		all := true
		c.model(func(m *root) { all = m.pane().top().grid.all })
		require.False(t, all, "there is nothing beyond what shows")

		c.press("esc", "g", "g", "enter", "space", "space", "space", "space", "L") // L releases the leases of the selected jobs
		c.typing("x")
		c.press("enter")
		c.rest(quiet)
		require.Equal(t, []string{token(0), s.jobs[3].LeaseID}, last(s.asked()).Targets, "each lease once")
		c.press("esc", "esc", "G")
		c.press("k", "L") // this job waits for its next attempt and has no lease
		c.sees("no lease to release")
		require.Empty(t, s.did())
	})
}

func TestSubscriptionForm(t *testing.T) {
	s := newStore()
	run(t, setup{store: s, w: 120, h: 50}, func(c *console) {
		c.press("4")
		c.sees("E may claim", "may claim", "MAY CLAIM", "nothing", "off until the")
		c.press("j", "j", "j", "E") // agent_01 has two job subscriptions: the form has the first
		c.sees("which jobs an executor may claim", "agent_01", "mail.send in iu: priority 0 and up", "Job kind        mail.send", "At once         12", "Enabled         true", "Reason")
		c.typing("the relay has more room")
		c.press("up", "up", "up", "backspace", "backspace")
		c.typing("0")
		c.press("enter", "enter", "enter", "enter")
		c.sees("a whole number from 1 to 1000000")
		require.Empty(t, s.asked())
		c.press("backspace")
		c.typing("20")
		c.press("enter", "enter", "enter", "enter")
		c.rest(quiet)
		req := last(s.asked())
		require.Equal(t, queue.ActJobSubscribe, req.Action)
		require.Equal(t, []string{"agent_01"}, req.Targets)
		require.Equal(t, map[string]string{
			"kind": "mail.send", "domain": "iu", "floor": "0", "parallel": "20", "enabled": "true",
		}, req.Args)
		require.Equal(t, "the relay has more room", req.Reason)
		c.sees("Keep", "Save agent_01")
		c.press("tab", "enter")
		require.Len(t, s.did(), 1)
		c.rest(quiet)
		c.press("enter")

		c.press("G", "k", "k", "k", "E") // the second job subscription of agent_01
		c.sees("agent_01", "Job kind        thumb.make", "Priority floor  50")
		c.press("esc", "G", "k", "E") // the disabled job subscription under the cursor
		c.sees("agent_03", "Job kind        report.render", "Enabled         false")
		c.press("esc", "enter")
		c.sees("Executors → agent_03", "OFF; priority 0 and up")
		c.press("E")
		c.sees("Job kind        report.render")
		c.press("esc", "esc", "g", "g", "E") // an executor without a job subscription
		c.sees("iu_outbound_default", "no job subscription: this executor gets no jobs", "At once         1")
		c.press("esc", "D")
		c.sees("D needs a row under MAY CLAIM")
		c.press("G", "D") // an enabled job subscription
		c.sees("Disable a job subscription", "executor   codex_indexer")
		c.press("esc", "k", "D") // a disabled job subscription
		c.sees("Enable a job subscription", "executor   agent_03")
		c.press("esc", "g", "g")
		c.press(":")
		c.typing("executor subscribe agent_02")
		c.press("enter")
		c.sees("which jobs an executor may claim", "Domain          import", "At once         100")
	})
}

// On the Overview, enter on a row of waiting jobs opens their queue lane, and enter on a
// row of dead jobs opens the dead letters of their kind.
func TestJobsFromTheOverview(t *testing.T) {
	s := newStore()
	run(t, setup{store: s, w: 200, h: 60}, func(c *console) {
		c.sees("job kg.reindex", "jobs done", "mail.send")
		c.model(func(m *root) {
			for _, x := range m.rowsOfBoard(m.pane().top()) {
				if x.Pane == queue.PaneQueues {
					m.pane().top().target, m.pane().top().armed = x, true
				}
			}
		})
		c.press("enter")
		c.sees("Queues · 10 rows", "Subscribed executors")
		at := ""
		c.model(func(m *root) { at = m.pane().top().grid.at })
		require.Equal(t, "kg/kg.reindex", at)
	})
	run(t, setup{}, func(c *console) {
		c.press("5", "j", "j", "enter")
		lists := c.store.listed()
		require.Equal(t, "source=job code=HANDLER_ERROR endpoint=mail.send domain=iu", last(lists).Filter)
		c.store.set(func(s *fakeStore) { s.deadLetters = viewstest.JobDeadLetters(12) })
		c.rest(20 * time.Second)
		c.sees("job:81f4-48907d178d60")
		c.press("g", "g", "enter")
		c.sees("Last error", "550 5.1.1 no such user", "attempts       5")
		c.press("R")
		c.typing("x")
		c.press("enter")
		c.rest(quiet)
		require.Equal(t, []string{"job:01a1ffab-7790-7000-81f4-48907d178d60"}, last(c.store.asked()).Targets)
	})
}

// R routes dead events again: one, the selected ones, those of a group, all
// that match the filter.
func TestEventDeadLettersInPane5(t *testing.T) {
	run(t, setup{}, func(c *console) {
		deadLetters := viewstest.EventDeadLetters(3)
		c.store.set(func(s *fakeStore) {
			s.deadLetters = deadLetters
			s.snap.DeadGroups = []queue.DeadGroup{{
				Source: "event", Code: deadLetters[0].Code, Endpoint: deadLetters[0].EventType, Domain: deadLetters[0].Domain, Open: 3, Trend: make([]int64, 12),
			}}
		})
		asks := func(keys ...string) queue.Request {
			c.press(keys...)
			c.press("R")
			c.typing("cured")
			c.press("enter")
			c.rest(quiet)
			got := last(c.store.asked())
			c.press("esc")
			return got
		}
		c.rest(20 * time.Second)
		got := asks("5")
		require.Equal(t, queue.ActRequeue, got.Action)
		require.Equal(t, "source=event code=ROUTE_22P02 endpoint=template.made domain=iu", got.Filter)
		c.press("enter")
		c.rest(20 * time.Second)
		require.Equal(t, []string{deadLetters[0].ID}, asks().Targets)
		require.ElementsMatch(t, []string{deadLetters[0].ID, deadLetters[1].ID}, asks("space", "space").Targets)
		require.Equal(t, "source=event code=ROUTE_22P02 endpoint=template.made domain=iu", asks("ctrl+a", "ctrl+a").Filter)
	})
}

// A pane can show two tables. In both, cursor, selection and scroll offset
// stay with their rows while other rows appear and vanish.
func TestTwoTablesStayInPlace(t *testing.T) {
	s := newStore()
	for i := range 60 {
		s.snap.Queues = append(s.snap.Queues, queue.Lane{Kind: queue.Clean(fmt.Sprintf("z.kind_%02d", i)), Domain: queue.Clean("iu"), Queued: 1})
		l := s.snap.JobLeases[0]
		l.ID = fmt.Sprintf("%08x-2222-4222-8333-0123456789ab", i)
		s.snap.JobLeases = append(s.snap.JobLeases, l)
	}
	run(t, setup{store: s}, func(c *console) {
		at := func() (id string) { c.model(func(m *root) { id = m.pane().top().grid.at }); return id }
		c.press("8")
		for range 30 {
			c.p.Send(keyOf("j"))
		}
		c.rest(time.Second)
		lane := at()
		require.Equal(t, "iu/z.kind_23", lane)
		c.sees("▌· z.kind_23")
		before := c.screen()
		s.set(func(s *fakeStore) {
			s.snap.Queues = append([]queue.Lane{{Kind: queue.Clean("a.new_one"), Domain: queue.Clean("iu")}}, s.snap.Queues...)
		})
		c.rest(3 * time.Second)
		require.Equal(t, lane, at())
		c.sees("▌· z.kind_23")
		require.Contains(t, before, "z.kind_23")
		c.press("G")
		c.sees("▌  ✖ codex_indexer", "0000003b", "z.kind_23") // the upper table does not scroll
		for range 61 {
			c.p.Send(keyOf("k"))
		}
		c.rest(time.Second)
		lease := at()
		c.sees("▌  ✖ codex_indexer", "3f2a9485")
		s.set(func(s *fakeStore) { s.snap.JobLeases = s.snap.JobLeases[1:] })
		c.rest(3 * time.Second)
		require.Equal(t, lease, at())
		c.sees("3f2a9485")
		s.set(func(s *fakeStore) { s.snap.JobLeases = s.snap.JobLeases[1:] })
		c.rest(3 * time.Second)
		c.press("L")
		c.sees("the cursor's row is gone; move to another")
		require.Zero(t, c.overlays(), "a vanished target disarms")
	})
}
