package tui

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
)

// D suspends an open endpoint and resumes a suspended one; L releases expired
// leases.
func TestWebhookKeys(t *testing.T) {
	for _, c := range []struct {
		down int
		key  string
		want queue.Request
		says string
	}{
		{0, "D", queue.Request{Action: queue.ActResume, Targets: []string{"5"}}, "Resume"},
		{1, "D", queue.Request{Action: queue.ActSuspend, Targets: []string{"12"}}, "Suspend"},
		{1, "L", queue.Request{Action: queue.ActLeaseRelease, Targets: []string{"88001"}}, "Release"},
		{6, "L", queue.Request{Action: queue.ActLeaseRelease, Targets: []string{"88001"}}, "Release"},
		{6, "D", queue.Request{Action: queue.ActSuspend, Targets: []string{"12"}}, "Suspend"},
	} {
		s := newStore()
		run(t, setup{store: s, w: 120, h: 40}, func(x *console) {
			x.press("7")
			x.sees("hooks.acme.example", "IN FLIGHT")
			for range c.down {
				x.press("j")
			}
			x.press(c.key)
			x.sees(c.says, "Reason")
			x.typing("receiver is being mended")
			x.press("enter")
			x.rest(quiet)
			got := last(s.asked())
			require.Equal(t, c.want.Action, got.Action)
			require.Equal(t, c.want.Targets, got.Targets)
			require.Empty(t, s.did(), "nothing happens without a confirm")
		})
	}
}

// E rotates the secret of the webhook subscription under the cursor, in the
// list and on its page.
func TestWebhookSecretKey(t *testing.T) {
	for _, keys := range [][]string{{"7", "j", "E"}, {"7", "j", "enter", "E"}} {
		s := newStore()
		run(t, setup{store: s, w: 120, h: 40}, func(x *console) {
			x.press(keys...)
			x.sees("Rotate the secret of a webhook subscription")
			x.typing("acme-2027")
			x.press("tab")
			x.typing("yearly rotation")
			x.press("enter")
			x.rest(quiet)
			require.Equal(t, queue.ActWebhookRotate, last(s.asked()).Action)
			require.Equal(t, []string{"12"}, last(s.asked()).Targets)
		})
	}
}

// M sets or lifts the rate limit of the webhook subscription under the cursor, in the list and on
// its page.
func TestWebhookLimitKey(t *testing.T) {
	for _, keys := range [][]string{{"7", "j", "M"}, {"7", "j", "enter", "M"}} {
		s := newStore()
		run(t, setup{store: s, w: 120, h: 40}, func(x *console) {
			x.press(keys...)
			x.sees("Set the rate limit of a webhook subscription", "none = no limit")
			x.typing("NaN")
			x.press("tab")
			x.typing("small receiver")
			x.press("enter")
			x.sees("nor none")
			x.press("backspace", "backspace", "backspace")
			x.typing("none")
			x.press("tab", "enter")
			x.rest(quiet)
			got := last(s.asked())
			require.Equal(t, queue.ActWebhookLimit, got.Action)
			require.Equal(t, []string{"12"}, got.Targets)
			require.Equal(t, "none", got.Args["per-second"])
			require.Empty(t, s.did(), "nothing happens without a confirm")
		})
	}
}

func TestWebhookKeysSayWhyNot(t *testing.T) {
	run(t, setup{}, func(x *console) {
		x.press("7", "L")
		x.sees("no lease of hooks.acme.example has expired")
	})
}

// Enter leads from the Overview to the endpoint whose deliveries wait, and
// from there to the page that says why; esc leads back.
func TestWhyAnEndpointWaits(t *testing.T) {
	s := newStore()
	run(t, setup{store: s, w: 120, h: 40}, func(x *console) {
		x.press("7", "enter")
		x.sees("Why it waits", "circuit open", "cure: 7 D", "Next attempts of waiting jobs")
		x.press("G")
		x.sees("Latest attempts")
		x.press("esc", ":")
		x.typing("why")
		x.press("enter")
		x.sees("D resume", "Why webhook hooks.acme.example waits", "no live host runs saga_orchestrator", "qtop worker --loops saga_orchestrator")
		require.Equal(t, queue.Query{Kind: queue.ListWhy, ID: "webhook hooks.acme.example", Limit: pageRows}, last(s.listed()))
		x.press("esc", ":")
		x.typing("why events iu")
		x.press("enter")
		x.sees("Why events iu waits")
		x.press("esc", "esc")
		x.sees("WAITING LONGEST")
	})
}

// The rows of the Overview about an endpoint open pane 7, filtered to that
// endpoint. The row about an operation opens pane 6.
func TestOverviewLeadsToEndpointsAndOperations(t *testing.T) {
	s := newStore()
	run(t, setup{store: s, w: 120, h: 40}, func(x *console) {
		x.model(func(m *root) {
			for i, q := range m.feed.snapshot.Suspended {
				require.NotZero(t, q.SubscriptionID, i)
			}
		})
		for range 5 { // down past the rows OFF, INVALID, OVERDUE, BRAKE and HELD
			x.press("j")
		}
		x.press("enter")
		x.sees("state", "filter id=12")
		require.Contains(t, last(s.listed()).Filter, "id=")
		x.press("esc", "esc")
		x.press("g", "g", "j", "j", "j", "enter")
		x.sees("first attempts")
	})
}

// The row count counts endpoints and leases, and says which were not read: neither hides the other.
func TestRowsThatWereNotReadAreCounted(t *testing.T) {
	s := newStore()
	for _, x := range []struct {
		endpoints, leases int
		unread            int64
		want              string
	}{
		{200, 60, 50, "260 of 310 rows"},
		{200, 60, 0, " 260 rows"},
		{20, queue.LeasesShown, 0, "220 of ≥220 rows"},
		{200, queue.LeasesShown, 50, "400 of ≥450 rows"},
	} {
		s.endpoints, s.leases, s.unread = nil, nil, x.unread
		for i := range x.endpoints {
			s.endpoints = append(s.endpoints, queue.Endpoint{ID: int64(i + 1), Endpoint: queue.Clean("hooks.example"), Gate: "open"})
		}
		for i := range x.leases {
			s.leases = append(s.leases, queue.WebhookLease{JobID: int64(i + 1), SubscriptionID: 1, Endpoint: queue.Clean("hooks.example"), Worker: queue.Clean("w"), StartedAt: s.snap.TakenAt, Until: s.snap.TakenAt})
		}
		run(t, setup{store: s, w: 120, h: 40}, func(c *console) {
			c.press("7")
			c.sees(x.want)
			c.press("space")
			c.sees("only rows under IN FLIGHT can be selected")
			c.press("2", "space")
			c.sees("select rows in Dead letters (5), Webhooks (7), Queues (8) or Activity (gl)")
		})
	}
	for rows, says := range map[int]string{450: "this is the last row", 1100: "100 more rows are not read; / filters"} {
		s.endpoints, s.leases, s.unread = nil, nil, 0
		for i := range rows {
			s.endpoints = append(s.endpoints, queue.Endpoint{ID: int64(i + 1), Endpoint: queue.Clean("hooks.example"), Gate: "open"})
		}
		run(t, setup{store: s, w: 120, h: 40}, func(c *console) {
			c.press("7")
			require.Equal(t, rereadMax, last(s.listed()).Limit)
			require.Equal(t, rows > rereadMax, strings.Contains(c.screen(), "not read: 100 more subscriptions and the leases of these; / filters"))
			c.press("G", "j")
			c.sees(says)
			before := len(s.listed())
			c.rest(10 * time.Second)
			require.LessOrEqual(t, count(kinds(s.listed()[before:]), queue.ListEndpoints), 2, "more than a page is not read with every snapshot")
		})
	}
	lanes := len(s.snap.Queues)
	for len(s.snap.JobLeases) < 50 {
		l := s.snap.JobLeases[0]
		l.ID = fmt.Sprint("lease ", len(s.snap.JobLeases))
		s.snap.JobLeases = append(s.snap.JobLeases, l)
	}
	s.snap.JobTable.Leases, s.snap.JobTable.LeasesExpired = 900, 400
	run(t, setup{store: s, w: 120, h: 40}, func(c *console) {
		c.press("8")
		c.sees(fmt.Sprintf("%d of ≥%d rows", lanes+50, lanes+400))
	})
}

// The open page of a lease shows it as it is now, and says when its read fails or the lease has ended.
func TestAnOpenLeaseIsReadAgain(t *testing.T) {
	s := newStore()
	run(t, setup{store: s, w: 120, h: 40}, func(x *console) {
		x.press("7", "j", "j", "j", "j", "j", "j", "enter")
		x.sees("Webhook job 88001 to api.slow.example", "attempt 2")
		s.set(func(s *fakeStore) {
			s.leases = slices.Clone(s.leases) // the console may hold the old slice
			s.leases[0].AttemptNo = 3
		})
		x.rest(2 * rereadGap)
		x.sees("attempt 3")
		x.seesNot("last read in full")
		s.set(func(s *fakeStore) { s.stuck = queue.ListEndpoints })
		x.rest(2 * time.Minute)
		x.sees("last read in full at", "attempt 3")
		s.set(func(s *fakeStore) { s.stuck = "" })
		x.rest(20 * time.Second)
		x.seesNot("last read in full")
		s.set(func(s *fakeStore) { s.leases = s.leases[1:] })
		x.rest(2 * rereadGap)
		x.sees("not listed at", "attempt 3")
		x.press("D") // the endpoint is there, although the delivery has ended
		x.sees("Suspend", "target  api.slow.example for invoice.sent (12)")
	})
}

// On the pages above the list of endpoints, D after a suspend resumes.
func TestEndpointsAreReadBehindTheirPages(t *testing.T) {
	for name, keys := range map[string][]string{
		"lease": {"j", "j", "j", "j", "j", "j", "enter"}, "why": {"j", ":why"}, "why of a page": {"j", "enter", ":why"}, "why of a lease": {"j", "j", "j", "j", "j", "j", "enter", ":why"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStore()
			run(t, setup{store: s, w: 120, h: 40}, func(x *console) {
				x.press("7")
				for _, k := range keys {
					if k == ":why" {
						x.press(":")
						x.typing("why")
						k = "enter"
					}
					x.press(k)
				}
				x.press("D")
				x.sees("Suspend")
				x.typing("receiver is being mended")
				x.press("enter")
				x.rest(quiet)
				s.set(func(s *fakeStore) {
					s.endpoints = slices.Clone(s.endpoints)
					for i := range s.endpoints {
						if e := &s.endpoints[i]; e.ID == 12 {
							e.Gate, e.Since = "suspended", &s.snap.TakenAt
						}
					}
				})
				x.press("tab", "enter")
				require.Equal(t, []string{"12"}, last(s.did()).Request.Targets)
				x.rest(2 * time.Second)
				x.press("enter", "D")
				var opened overlay
				x.model(func(m *root) { opened = m.over[0] })
				require.Equal(t, queue.ActResume, opened.(*dialog).action.ID)
			})
		})
	}
}

// On the page of :why, keys work on the row below only if the page explains its queue, and never on
// selected rows.
func TestThePageOfWhyActsOnNoOtherRow(t *testing.T) {
	for _, p := range Panes() {
		m := newStill(newStore(), newHost(), Options{Actor: "anna"})
		m.keys(strings.Split(p.Keys, "")...)
		m.why("job nosuch in x")
		m.lists()
		at := m.scene().acting()
		for _, a := range m.actions {
			if find := at.target(a.ID); a.Key != "" && worksIn(a, p.ID) && find != nil {
				require.Contains(t, find(at, &queue.Request{Args: map[string]string{}}), "this page is about a queue", "%s %s", p.ID, a.Key)
			}
		}
	}
	backlog := queue.Alert{Key: queue.Clean("k"), Kind: queue.AlertBacklog, Subject: queue.Clean("backlog:job kg.reindex in kg"), State: "open", Severity: "warning"}
	s := newStore()
	s.snap.Alerts = append(s.snap.Alerts, backlog)
	m := newStill(s, nil, Options{Actor: "anna"})
	m.pane().top().target = views.Target{Pane: queue.PaneAlerts, ID: "k", Row: "BACKLOG"}
	m.settle()
	require.True(t, m.pane().top().armed)
	m.why("")
	m.lists()
	m.keys("A")
	require.Len(t, m.over, 1, m.notice.text)

	s = newStore()
	run(t, setup{store: s, w: 120, h: 40}, func(x *console) {
		why := func(name string) {
			x.press(":")
			x.typing("why " + name)
			x.press("enter")
		}
		x.press("7", "j", "j", "j", "j", "j", "j", "space", "g", "g")
		for _, name := range []string{"webhook api.slow.example", "job kg.reindex in kg"} {
			why(name)
			x.sees("Why " + name + " waits")
			for _, key := range []string{"D", "E", "M", "L"} {
				x.press(key)
				x.sees("this page is about a queue, not about a row of Webhooks; esc goes back")
				require.Zero(t, x.overlays())
			}
			x.press("esc")
		}
		why("webhook hooks.acme.example")
		x.press("L")
		x.sees("no lease of hooks.acme.example has expired")
		x.press("D")
		x.sees("Resume")
		x.press("esc", "esc")
		x.sees("1 selected")
	})
}

// The help of pane 7 says how an endpoint is suspended where D would close its circuit.
func TestHelpSaysHowToSuspendBehindACircuit(t *testing.T) {
	run(t, setup{w: 120, h: 40}, func(x *console) {
		x.press("7", "?")
		x.sees("there type :endpoint suspend")
	})
}

// :why with the name of an executor shows its page.
func TestWhyOfAnExecutor(t *testing.T) {
	t.Parallel()
	m := newStill(newStore(), nil, Options{Actor: "anna"})
	l := whyLevel("iu_outbound_default")
	l.list.err = queue.NewError(queue.KindFailed, "there is no queue iu_outbound_default", "", "").Because(queue.ErrNoQueue)
	at := m.scene()
	at.level = &l
	page, ok := l.page(at)
	require.True(t, ok)
	text := ansi.Strip(strings.Join(page.Lines, "\n"))
	require.Contains(t, text, "what it does   routes outbox events")
	require.Contains(t, text, "cure ")
	l.list.err = queue.NewError(queue.KindUnavailable, "the database is away", "", "")
	page, _ = l.page(at)
	require.NotContains(t, ansi.Strip(strings.Join(page.Lines, "\n")), "cure ")
}
