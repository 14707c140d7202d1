package tui

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views/viewstest"
)

func TestFirstFrameNeedsNoDatabase(t *testing.T) {
	s := newStore()
	s.delay = time.Hour // no snapshot arrives during this test
	s.link = queue.Link{State: "connecting"}
	run(t, setup{store: s}, func(c *console) {
		c.sees("connecting", "1 Over", "Waiting for the first snapshot")
		c.press("5")
		c.sees("Waiting for the first snapshot", "Dead letters · not read")
		c.seesNot("0 rows")
		c.press("2", "?")
		c.sees("Keys", "Panes")
		c.press("esc", "q")
		require.True(t, c.ended(), "q does not wait for the database")
	})
}

func TestPanes(t *testing.T) {
	run(t, setup{host: newHost(), w: 120, h: 40}, func(c *console) {
		c.sees("SILENT", "iu_outbound_default", "WAITING LONGEST", "DEAD", "FLOW", "live", "anna (workflow_admin", "db 3.1 ms")
		for _, p := range []struct{ keys, words string }{
			{"2", "heartbeat"}, {"3", "import runs"}, {"4", "external_reports"}, {"5", "TLS_CERT_INVALID"}, {"8", "STUCK LEASES"},
			{"g f", "webhook.batch_size"}, {"g w", "WAKE STREAM"}, {"g s", "REACHES NOBODY"}, {"g a", "flag set"}, {"1", "SILENT"},
		} {
			for _, k := range p.keys {
				if k != ' ' {
					c.press(string(k))
				}
			}
			c.sees(p.words)
		}
		c.press("0")
		c.sees("Panes", "Worker host")
		c.press("g", "g")
		c.press("esc", "tab")
		c.sees("stale first")
		c.press("shift+tab", "shift+tab")
		c.model(func(m *root) { require.Equal(t, last(Panes()).ID, m.at) })
		c.press("9")
		c.sees("SCHEDULER MODE")
	})
}

// An empty database looks calm, and every pane says what to do next.
func TestEmptyDatabase(t *testing.T) {
	s := newStore()
	s.snap, s.audit = viewstest.Empty(), nil
	run(t, setup{store: s, w: 120, h: 40}, func(c *console) {
		c.sees("NO HOST", "no executor is silent", "no work is waiting", "no dead letter is open")
		for _, p := range [][]string{
			{"Nothing reports its health yet", "2"}, {"No executor is silent", "3"}, {"N registers an executor", "4"}, {"No dead letter is open", "5"}, {"fn_job_enqueue", "8"},
			{"webhook.worker.enabled", "g", "f"}, {"no worker host has ever reported", "g", "w"}, {"No action has been taken yet", "g", "a"},
		} {
			c.press(p[1:]...)
			c.sees(p[0])
		}
		c.press("g", "f", "/")
		c.typing("key:nothing")
		c.sees("No row matches key:nothing among 1 row", "0 of 1 rows")
	})
}

// If a screen has room below a table, it shows the page of the row under the
// cursor there.
func TestPageBeneath(t *testing.T) {
	run(t, setup{w: 120, h: 40}, func(c *console) {
		c.press("3")
		c.sees("last heartbeat", "88121, 88240")
		c.press("j")
		c.seesNot("88121, 88240")
	})
	run(t, setup{}, func(c *console) {
		c.press("4")
		c.seesNot("registered by")
	})
}

func TestEscNeverQuits(t *testing.T) {
	run(t, setup{}, func(c *console) {
		c.press("5", "enter", "enter")
		c.sees("Attempts")
		c.press("esc", "space", "space")
		c.sees("2 selected")
		c.press("esc")
		c.seesNot("2 selected")
		c.press("esc", "esc", "esc", "esc", "esc")
		c.sees("SILENT")
		require.False(t, c.ended())
	})
}

// A row that leaves the filter is not gone.
func TestCursorOfARowThatLeavesTheFilter(t *testing.T) {
	s := newStore()
	for i := range s.snap.Executors {
		s.snap.Executors[i].Kind = queue.Clean("cron")
	}
	run(t, setup{store: s}, func(c *console) {
		c.press("4", "/")
		c.typing("kind:cron")
		c.press("enter", "j")
		c.rest(time.Second)
		was := ""
		c.model(func(m *root) { was = m.scene().subject() })
		require.NotEmpty(t, was)
		s.set(func(s *fakeStore) {
			s.snap.Executors = slices.Clone(s.snap.Executors)
			for i, x := range s.snap.Executors {
				if x.ID.String() == was {
					s.snap.Executors[i].Kind = queue.Clean("external_worker")
				}
			}
		})
		c.rest(2 * time.Second)
		c.sees("the cursor's row is not listed")
		c.press("A")
		c.sees("the cursor's row is not listed; move to another")
		require.Zero(t, c.overlays())
	})
}

func TestCursorFollowsIDs(t *testing.T) {
	s := newStore()
	run(t, setup{store: s}, func(c *console) {
		c.press("4", "j", "j", "j")
		id := ""
		c.model(func(m *root) { id = m.pane().top().grid.at })
		require.Equal(t, "agent_01", id)
		s.set(func(s *fakeStore) { // other rows appear above it
			worse := s.snap.Executors[0]
			worse.ID = queue.Clean("a_new_dead_one")
			s.snap.Executors = append([]queue.Executor{worse}, s.snap.Executors...)
		})
		c.rest(2 * time.Second)
		c.model(func(m *root) {
			i, ok := m.pane().top().grid.current()
			require.True(t, ok)
			require.Equal(t, id, m.feed.snapshot.Executors[i].ID.String())
		})
		s.set(func(s *fakeStore) { // the row under the cursor vanishes
			var left []queue.Executor
			for _, x := range s.snap.Executors {
				if x.ID.String() != id {
					left = append(left, x)
				}
			}
			s.snap.Executors = left
		})
		c.rest(2 * time.Second)
		c.sees("the cursor's row is gone")
		c.press("A")
		c.sees("the cursor's row is gone; move to another")
		require.Zero(t, c.overlays(), "a vanished target disarms")
		c.press("g", "g", "j", "A")
		require.Equal(t, 1, c.overlays())
	})
}

func TestFilter(t *testing.T) {
	run(t, setup{w: 120, h: 40}, func(c *console) {
		c.press("2", "/")
		c.typing("source:backlog_webhook")
		c.sees("1 of 21 rows", "api.slow.example")
		c.seesNot("agent_01")
		c.press("enter")
		c.sees("filter source:backlog_webhook")
		c.press("3", "2")
		c.sees("21 rows") // another pane was opened meanwhile, so the filter is gone
		c.press("/")
		c.typing("domain:kg foo:1")
		c.sees("^", "foo")
		c.press("enter")
		c.model(func(m *root) { require.True(t, m.line.open(), "a wrong filter is not taken") })
		c.press("esc")
		c.sees("21 rows")
		// The dead letters are not in the snapshot, so the database applies
		// the filter.
		c.press("5", "enter", "/")
		c.typing("age>1h")
		c.press("enter")
		lists := c.store.listed()
		last := lists[len(lists)-1]
		require.Equal(t, queue.ListDeadLetters, last.Kind)
		require.Equal(t, "source=webhook code=HTTP_503 subscription=7 domain=billing age>1h", last.Filter)
	})
}

func TestGroupsThatTheSnapshotLeavesOut(t *testing.T) {
	s := newStore()
	s.snap.DeadMore = queue.DeadMore{Groups: 850, GroupsBound: true, Open: 984_123}
	run(t, setup{store: s, w: 120, h: 40}, func(c *console) {
		c.press("5")
		c.sees("at least 850 more groups with 984,123 dead letters", "other groups")
		c.press("R")
		c.sees("this row stands for many groups")
		c.press("2")
		c.sees("not in this snapshot: the rows of ", " dead letters; pane 5 lists all")
		for _, pane := range []string{"2", "5"} { // the filter matches no row; the rows were read
			c.press(pane, "/")
			c.typing("source:none")
			c.press("enter")
			c.sees("No row matches source:none among", " · 0 of ")
			c.press("esc")
		}
		c.press("enter", "/")
		c.typing("code:RARE endpoint:x")
		c.press("enter")
		lists := c.store.listed()
		last := lists[len(lists)-1]
		require.Equal(t, queue.ListDeadLetters, last.Kind)
		require.Equal(t, "code:RARE endpoint:x", last.Filter)
	})
}

func TestFilterOfAGroupIsReadBack(t *testing.T) {
	for _, bad := range append(viewstest.Hostile(), `a b`, `x|y`, `"`, `\`, `*`, ``) {
		g := queue.DeadGroup{Source: "webhook", Code: queue.Clean(bad), Endpoint: queue.Clean(bad), Domain: queue.Clean(bad)}
		text := groupFilter(g)
		if len(text) > 8000 {
			continue // a filter has a maximum length, and a longer one is refused
		}
		f, err := queue.ParseFilter(text, queue.DeadLetterFields())
		require.NoError(t, err, text)
		get := func(field string) (any, bool) {
			return map[string]any{"source": "webhook", "code": g.Code.String(), "endpoint": g.Endpoint.String(), "domain": g.Domain.String()}[field], true
		}
		require.True(t, f.Match(get, time.Now()), text)
	}
}

func TestLostAndBack(t *testing.T) {
	s := newStore()
	run(t, setup{store: s, w: 120, h: 30}, func(c *console) {
		s.set(func(s *fakeStore) {
			s.link = queue.Link{State: "lost", Reason: queue.Clean("connection refused"), Attempt: 2, RetryIn: 4}
			s.err = errors.New("connection refused")
		})
		c.rest(42 * time.Second)
		c.sees("LOST", "last snapshot 42s old", "attempt 3 in 4s", "connection refused", "iu_outbound_default", "┊", "(A acknowledge)")
		c.press("3", "A")
		c.sees("Acknowledge is off: the connection to the database is lost")
		require.Zero(t, c.overlays())
		s.set(func(s *fakeStore) { s.link, s.err = queue.Link{State: "live"}, nil })
		c.rest(2 * time.Second)
		c.seesNot("LOST", "┊")
		c.sees("live", "connected to the database again")
	})
}

// A snapshot that waits for a lock is not a lost connection: the console says what it waits for, how old
// the screen is, and keeps its actions.
func TestSlowIsNotLost(t *testing.T) {
	s := newStore()
	run(t, setup{store: s, w: 120, h: 30}, func(c *console) {
		reason := queue.Clean("no result after 5s: waits for a lock that session 4711 (etl, psql) holds")
		s.set(func(s *fakeStore) {
			s.link = queue.Link{State: "slow", Reason: reason}
			s.err = queue.NewError(queue.KindUnavailable, reason.String(), "", "")
		})
		c.rest(42 * time.Second)
		c.sees("SLOW, 42s old", "waits for a lock that session 4711 (etl, psql) holds", "iu_outbound_default", "┊")
		c.seesNot("LOST")
		c.press("3", "A")
		c.sees("Acknowledge")
		require.Equal(t, 1, c.overlays())
		c.press("esc")
		s.set(func(s *fakeStore) { s.link, s.err = queue.Link{State: "live"}, nil })
		c.rest(40 * time.Second)
		c.seesNot("SLOW", "┊")
	})
}

// The whole reason of a lost connection can be read at 80 columns.
func TestReasonOfALostConnectionIsNotCut(t *testing.T) {
	s := newStore()
	run(t, setup{store: s}, func(c *console) {
		reason := "failed to connect to host=db1.eu.example user=anna: no pg_hba.conf entry for host 10.1.2.3, user anna"
		s.set(func(s *fakeStore) {
			s.link = queue.Link{State: "lost", Reason: queue.Clean(reason), Attempt: 2, RetryIn: 4}
			s.err = errors.New("connection refused")
		})
		c.rest(10 * time.Second)
		text := strings.Join(strings.Fields(strings.Join(strings.Split(c.screen(), "\n")[2:5], " ")), " ")
		require.Contains(t, text, reason)
		require.Contains(t, text, "attempt 3 in 4s")
	})
}

// A banner that stays over midnight says of which day its time is, although the snapshot is of that day too.
func TestALossOverMidnightHasItsDate(t *testing.T) {
	s := newStore()
	evening := func() time.Time { return time.Now().Add(23*time.Hour + 50*time.Minute) }
	run(t, setup{store: s, w: 120, h: 30, o: Options{Now: evening}}, func(c *console) {
		s.set(func(s *fakeStore) { s.snap.TakenAt = evening() })
		c.rest(3 * time.Second)
		s.set(func(s *fakeStore) {
			s.link, s.err = queue.Link{State: "lost"}, errors.New("connection refused")
		})
		c.rest(2 * time.Second)
		c.sees("LOST", "since 23:50")
		c.rest(11 * time.Minute)
		c.sees("LOST", "since 01-01 23:50")
	})
}

func TestRefreshCadence(t *testing.T) {
	s := newStore()
	run(t, setup{store: s}, func(c *console) {
		before := s.snapped()
		c.rest(60 * time.Second)
		require.InDelta(t, 60, s.snapped()-before, 2, "one a second")
		require.Equal(t, []time.Duration{900 * time.Millisecond}, slices.Compact(s.allowed()[before:]), "shared with consoles that refresh as often")

		// Change hints cause at most one refresh every 250 ms.
		before = s.snapped()
		for range 100 {
			select {
			case s.changes <- struct{}{}:
			default:
			}
			c.rest(10 * time.Millisecond)
		}
		n := s.snapped() - before
		require.GreaterOrEqual(t, n, 4)
		require.LessOrEqual(t, n, 6)
		require.Subset(t, []time.Duration{fresh, 900 * time.Millisecond}, s.allowed()[before:])
		require.Contains(t, s.allowed()[before:], fresh, "after a hint a fresh one")

		// The console asks a slow database less often, and has at most one
		// snapshot in progress.
		s.set(func(s *fakeStore) { s.delay, s.most = 2*time.Second, 0 }) // at the start it reads the session beside the snapshot
		c.rest(time.Minute)
		before = s.snapped()
		c.rest(100 * time.Second)
		require.InDelta(t, 10, s.snapped()-before, 1, "five times its own time")
		require.Equal(t, 9*time.Second, s.allowed()[before])
		require.Equal(t, 1, s.busiest())

		// A refresh that the database never answers ends at snapshotDeadline.
		s.set(func(s *fakeStore) { s.delay = time.Hour })
		c.rest(time.Minute)
		c.sees("NOT FRESH", "did not answer in time")
		require.Equal(t, 1, s.busiest())
	})
}

// While refreshes fail, the snapshot is old as soon as without failures, although each takes 5 s and
// other reads succeed.
func TestFailingRefreshIsNotLive(t *testing.T) {
	s := newStore()
	run(t, setup{store: s, w: 120, h: 30}, func(c *console) {
		c.rest(10 * time.Second)
		s.set(func(s *fakeStore) { s.delay = time.Hour })
		for range 10 {
			c.rest(5 * time.Second)
			header, _, _ := strings.Cut(c.screen(), "\n")
			require.NotContains(t, header, "live")
			require.Regexp(t, "[0-9]+s old", header)
			c.sees("┊")
		}
		c.sees("NOT FRESH")
	})
}

func TestChangeShowsWithin250ms(t *testing.T) {
	s := newStore()
	run(t, setup{store: s, o: Options{Refresh: time.Minute}}, func(c *console) {
		c.rest(10 * time.Second)
		s.set(func(s *fakeStore) { s.snap.Alerts[0].Subject = queue.Clean("changed_just_now") })
		s.changes <- struct{}{}
		c.rest(200 * time.Millisecond)
		c.sees("changed_just_now")
		close(s.changes)
		c.rest(time.Second)
	})
}

func TestPauseFreezesAndDisarms(t *testing.T) {
	s := newStore()
	run(t, setup{store: s}, func(c *console) {
		c.press("p")
		s.set(func(s *fakeStore) { s.snap.Alerts[0].Subject = queue.Clean("not_seen_yet") })
		n := s.snapped()
		c.rest(20 * time.Second)
		c.sees("PAUSED", "iu_outbound_default")
		require.Equal(t, n, s.snapped(), "a paused console asks nothing")
		c.press("3", "A")
		c.sees("Acknowledge is off: the console is paused")
		c.press("p", "1")
		c.sees("not_seen_yet")
	})
}

func TestRights(t *testing.T) {
	s := newStore()
	s.session.Rights = map[queue.ActionID]bool{}
	s.session.Needs = map[queue.ActionID]string{queue.ActRequeue: "dead_letter_operator"}
	run(t, setup{store: s}, func(c *console) {
		c.press("5")
		c.sees("(R requeue)")
		c.press("R")
		c.sees("Requeue is off: demo_operator lacks the role dead_letter_operator")
		c.press("?")
		c.sees("lacks the role")
	})
	run(t, setup{o: Options{ReadOnly: true}}, func(c *console) {
		c.sees("READ-ONLY")
		c.press("5", "R")
		c.sees("this console is read-only")
	})
	s = newStore()
	s.session.InRecovery = true
	run(t, setup{store: s}, func(c *console) {
		c.sees("STANDBY")
		c.press("5", "R")
		c.sees("this server is a standby")
	})
}

// The demo's help shows how the verbs reach its database from another shell.
func TestHelpHasTheDSNOfTheDemo(t *testing.T) {
	run(t, setup{w: 160, h: 40, o: Options{Demo: "demo as demo_operator", DemoDSN: "postgres://demo_operator@/qtop?host=/run/demo"}}, func(c *console) {
		c.press("?", "/")
		c.typing("qtop_dsn")
		c.sees("export QTOP_DSN='postgres://demo_operator@/qtop?host=/run/demo'")
	})
}

// When a standby becomes the primary, a console that is connected to it shows
// that within 10 s.
func TestPromotionIsSeen(t *testing.T) {
	s := newStore()
	s.session.InRecovery, s.snap.Server.InRecovery = true, true
	run(t, setup{store: s}, func(c *console) {
		c.rest(30 * time.Second)
		c.sees("STANDBY")
		c.store.set(func(s *fakeStore) { s.session.InRecovery, s.snap.Server.InRecovery = false, false })
		c.rest(9 * time.Second)
		c.seesNot("STANDBY")
	})
}

func TestMonitoringOff(t *testing.T) {
	s := newStore()
	s.snap.MonitoringOff = true
	run(t, setup{store: s}, func(c *console) {
		for _, p := range Panes() {
			for _, k := range p.Keys {
				c.press(string(k))
			}
			c.sees("MONITORING OFF")
		}
	})
}

func TestMissingIsSaid(t *testing.T) {
	s := newStore()
	s.snap.Health, s.snap.Missing = nil, map[string]queue.Text{"health": queue.Clean("permission denied for view v_queue_health")}
	run(t, setup{store: s, w: 120, h: 30}, func(c *console) {
		c.press("2")
		c.sees("not in this snapshot: health: permission denied", "Health · not read")
	})
	s = newStore()
	s.snap = queue.Snapshot{TakenAt: s.snap.TakenAt, Missing: map[string]queue.Text{"all": queue.Clean("it needs the role queue_viewer")}}
	run(t, setup{store: s, w: 80, h: 24}, func(c *console) {
		c.sees("not in this snapshot: it needs the role queue_viewer")
		c.seesNot("no executor is silent", "no work is waiting", "NO HOST", "WAITING LONGEST", "FLOW", "db 0.0 ms")
		c.press("9")
		c.sees("not in this snapshot: it needs the role queue_viewer", "This could not be read.", "Scheduler · not read")
		c.seesNot("There is no tick worker", "0 rows")
	})
}

func TestCopyAndTimes(t *testing.T) {
	run(t, setup{}, func(c *console) {
		c.press("4", "y")
		c.sees("sent to the clipboard: iu_outbound_default")
		require.Contains(t, c.out.all(), "\x1b]52;c;aXVfb3V0Ym91bmRfZGVmYXVsdA==")
		c.press("t")
		c.model(func(m *root) { require.False(t, m.display.utc) })
	})
	run(t, setup{o: Options{Clipboard: "off"}}, func(c *console) {
		c.press("4", "y")
		c.sees("copying is off")
		require.NotContains(t, c.out.all(), "\x1b]52")
	})
}

func TestOrder(t *testing.T) {
	run(t, setup{}, func(c *console) {
		c.press("4", "o")
		c.sees("Order", "last heartbeat, oldest first")
		c.press("3")
		c.sees("executor↑")
		c.model(func(m *root) {
			g := m.pane().top().grid
			require.Equal(t, "agent_01", g.src.ID(g.order[0]))
		})
	})
}

// When nothing changes, a console writes only the clock and the age of the
// snapshot to the terminal: over a slow line every byte costs.
func TestBytesAtRest(t *testing.T) {
	s := newStore()
	run(t, setup{store: s, w: 200, h: 50}, func(c *console) {
		c.rest(3 * time.Second)
		before := c.out.written()
		for range 20 {
			s.set(func(s *fakeStore) {
				s.snap.TakenAt = s.snap.TakenAt.Add(time.Second)
				for i := range s.snap.Executors {
					if a := s.snap.Executors[i].AgeSeconds; a != nil {
						n := *a + 1
						s.snap.Executors[i].AgeSeconds = &n
					}
				}
				for i := range s.snap.Health {
					if a := s.snap.Health[i].AgeSeconds; a != nil {
						n := *a + 1
						s.snap.Health[i].AgeSeconds = &n
					}
				}
			})
			c.rest(time.Second)
		}
		perSecond := (c.out.written() - before) / 20
		t.Logf("%d bytes a second", perSecond)
		require.LessOrEqual(t, perSecond, 1024)
	})
}

func TestTooSmall(t *testing.T) {
	run(t, setup{w: 50, h: 10}, func(c *console) {
		c.sees("at least 60 columns")
		c.p.Send(tea.WindowSizeMsg{Width: 1, Height: 1})
		c.rest(time.Second)
		c.p.Send(tea.WindowSizeMsg{Width: 80, Height: 24})
		c.rest(time.Second)
	})
}

func TestStartsWhereAsked(t *testing.T) {
	run(t, setup{o: Options{StartPane: queue.PaneDead, StartFilter: "code:TIMEOUT"}}, func(c *console) {
		c.sees("1 of 6 rows", "api.slow.example")
	})
}
