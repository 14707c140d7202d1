package tui

import (
	"cmp"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/queue"
)

// quiet is longer than quietFor, the time during which a new dialog ignores
// keys.
const quiet = 500 * time.Millisecond

func TestAcknowledge(t *testing.T) {
	s := newStore()
	run(t, setup{store: s}, func(c *console) {
		c.press("3", "A")
		c.sees("Acknowledge an alert", "Comment", "For", "Preview")
		c.typing("on it")
		c.press("tab", "enter")
		c.rest(quiet)
		c.sees("Not now", "Acknowledge", "same as", "qtop ack silence:iu_outbound_default --yes")
		require.Equal(t, queue.Request{
			Action: queue.ActAck, Targets: []string{"silence:iu_outbound_default"}, Actor: "anna",
			Args: map[string]string{"comment": "on it", "for": "30m"},
		}, s.asked()[0])
		c.press("enter") // the safe button has the focus when the preview opens
		require.Empty(t, s.did())
		require.Zero(t, c.overlays())

		c.press("A")
		c.typing("on it")
		c.press("tab", "enter")
		c.rest(quiet)
		c.press("tab", "enter")
		c.sees("Done", "#982")
		require.Len(t, s.did(), 1)
		c.rest(quiet)
		c.press("enter")
		require.Zero(t, c.overlays())
	})
}

func TestAckedAlertIsGivenUp(t *testing.T) {
	run(t, setup{}, func(c *console) {
		c.press("3", "G")
		c.sees("A unack")
		c.press("A")
		c.sees("Unacknowledge an alert")
	})
}

// Keys that were typed before or while a dialog opened never confirm it.
func TestEarlyKeysConfirmNothing(t *testing.T) {
	s := newStore()
	run(t, setup{store: s}, func(c *console) {
		c.press("5", "enter", "enter")
		for _, k := range []string{"R", "x", "enter", "tab", "enter", "enter", "tab", "enter", "right", "enter", "enter", "enter"} {
			c.p.Send(keyOf(k)) // as fast as a paste into a terminal without bracketed paste
		}
		c.rest(2 * time.Second)
		require.Empty(t, s.did())
		if c.overlays() > 0 {
			c.sees("→ Keep") // the focus has not left the safe button
		}
		// A held key repeats without a pause. After quietMost the dialog
		// accepts it, so that it does not block the dialog for ever; it then
		// presses the safe button, which has the focus.
		if c.overlays() == 0 {
			c.press("R", "x", "enter")
		}
		for range 40 {
			c.p.Send(keyOf("enter"))
			c.rest(30 * time.Millisecond)
		}
		require.Empty(t, s.did())
	})
}

// A form that lacks its reason names it as the form does.
func TestReasonIsNamedAsInTheForm(t *testing.T) {
	run(t, setup{}, func(c *console) {
		c.press("5", "R", "enter")
		c.sees("▲ reason is needed")
		c.typing(strings.Repeat("x", queue.MostReason+1))
		c.press("enter")
		c.sees("a reason must have 1 to 2000 characters")
	})
}

func TestGate(t *testing.T) {
	t0 := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	at := func(ms int) time.Time { return t0.Add(time.Duration(ms) * time.Millisecond) }
	g := newKeyGate(t0)
	require.False(t, g.allows(at(100)))
	require.False(t, g.allows(at(399)))
	require.False(t, g.allows(at(700)), "the quiet begins anew with each key")
	require.True(t, g.closed(at(1000)))
	require.True(t, g.allows(at(1100)))
	require.True(t, g.allows(at(1101)), "open stays open")
	g = newKeyGate(t0)
	for ms := 0; ms < 1500; ms += 50 {
		require.False(t, g.allows(at(ms)))
	}
	require.True(t, g.allows(at(1500)))
	g = newKeyGate(t0)
	require.True(t, g.allows(at(400)))
}

func TestPasteActsOnNothing(t *testing.T) {
	s := newStore()
	run(t, setup{store: s, o: Options{Production: "prod-eu"}}, func(c *console) {
		c.p.Send(tea.PasteMsg{Content: "5R\r\n:quit\r"})
		c.rest(time.Second)
		c.sees("SILENT", "pasted text is ignored here")
		c.press("5", "R")
		c.p.Send(tea.PasteMsg{Content: "because\r\nof \x1b[31mthis\r"})
		c.rest(time.Second)
		c.sees("because of ␛[31mthis")
		c.press("enter")
		c.rest(quiet)
		c.p.Send(tea.PasteMsg{Content: "prod-eu"})
		c.rest(time.Second)
		c.sees("type the text; pasted text does not confirm")
		c.press("enter", "enter", "tab", "enter")
		require.Empty(t, s.did())
	})
}

func TestManyNeedTheirCount(t *testing.T) {
	s := newStore()
	run(t, setup{store: s}, func(c *console) {
		c.press("5", "R")
		c.typing("receiver is back")
		c.press("enter")
		c.rest(quiet)
		c.sees("Requeue 4,638", "type 4638", "2 rows will be skipped", "2 × requeued already by ben 00:05")
		require.Equal(t, "source=webhook code=HTTP_503 subscription=7 domain=billing", s.asked()[0].Filter)
		require.Equal(t, "receiver is back", s.asked()[0].Reason)
		c.press("tab", "tab", "enter")
		require.Empty(t, s.did())
		c.typing("463")
		c.press("tab", "tab", "enter")
		require.Empty(t, s.did(), "not the count")
		c.typing("8")
		c.press("enter")
		c.press("tab", "enter")
		require.Len(t, s.did(), 1)
		c.sees("Done: requeue, 4,638 rows; 2 skipped.")
	})
}

func TestSelection(t *testing.T) {
	s := newStore()
	run(t, setup{store: s}, func(c *console) {
		c.press("5", "enter", "space", "space", "j", "v", "j", "j", "v")
		c.sees("5 selected")
		c.press("R")
		c.typing("x")
		c.press("enter")
		c.rest(quiet)
		require.Equal(t, []string{"91000", "90999", "90997", "90996", "90995"}, s.asked()[0].Targets)
		c.sees("type 5")
		c.press("esc", "esc")
		c.press("ctrl+a")
		c.sees("40 selected; ctrl+a again selects all 4,640 matching rows")
		c.press("ctrl+a")
		c.sees("all 4,640 matching rows selected")
		c.press("R")
		c.typing("x")
		c.press("enter")
		c.rest(quiet)
		require.Equal(t, "source=webhook code=HTTP_503 subscription=7 domain=billing", s.asked()[1].Filter)
		require.Empty(t, s.asked()[1].Targets)
		c.press("esc")
		s.set(func(s *fakeStore) { s.deadLetters = s.deadLetters[30:] })
		c.rest(20 * time.Second)
		c.press("p")
		c.press("p")
		c.rest(time.Second)
		c.model(func(m *root) {
			require.LessOrEqual(t, len(m.pane().top().grid.selected), 10, "vanished rows are no longer selected")
		})
	})
}

// The environment of the database decides whether it is guarded, and its name
// must be typed. If it has no name but the profile says production, the name to
// type is that of the database.
func TestProduction(t *testing.T) {
	s := newStore()
	run(t, setup{store: s, o: Options{Production: "prod", Profile: "prod"}}, func(c *console) {
		c.press("5", "enter", "enter", "R")
		c.typing("x")
		c.press("enter")
		c.rest(quiet)
		c.sees("in QUEUE", "type queue")
	})
	s = newStore()
	s.session.Environment = queue.ReadEnvironment("queue", "prod-eu guarded")
	var ahead atomic.Int64 // seconds by which the operator's clock is moved forward
	now := func() time.Time { return time.Now().Add(time.Duration(ahead.Load()) * time.Second) }
	run(t, setup{store: s, o: Options{Now: now}}, func(c *console) {
		c.sees("PROD-EU")
		one := func() {
			c.press("5", "enter", "enter", "R")
			c.typing("x")
			c.press("enter")
			c.rest(quiet)
		}
		one()
		c.sees("in PROD-EU", "type prod-eu")
		c.typing("prod-e")
		c.press("tab", "tab", "enter")
		require.Empty(t, s.did())
		c.typing("u")
		c.press("enter", "tab", "enter")
		require.Len(t, s.did(), 1)
		c.rest(quiet)
		c.press("enter")

		one() // production is unlocked for 15 minutes after its name was typed
		c.seesNot("type prod-eu")
		c.press("esc", "esc", "esc")
		c.press("R") // several rows: the name is asked again
		c.typing("x")
		c.press("enter")
		c.rest(quiet)
		c.sees("type prod-eu", "How many")
		c.press("esc")
		ahead.Store(16 * 60)
		one()
		c.sees("type prod-eu")
		c.press("esc")
		c.press("3", "A") // an acknowledgement needs a comment, but never the name
		c.typing("on it")
		c.press("tab", "enter")
		c.rest(quiet)
		c.seesNot("type prod-eu")
	})
}

func TestRefusalsAreShown(t *testing.T) {
	s := newStore()
	s.refuse = "requeued already by ben at 00:05 as saga 399"
	run(t, setup{store: s}, func(c *console) {
		c.press("5", "enter", "enter", "R")
		c.typing("x")
		c.press("enter")
		c.rest(quiet)
		c.press("tab", "enter")
		c.sees("Nothing was changed", "requeued already by ben at 00:05", "Preview again")
		c.rest(quiet)
		c.press("enter")
		s.set(func(s *fakeStore) { s.err = errors.New("permission denied") })
		c.press("R")
		c.typing("x")
		c.press("enter")
		c.rest(quiet)
		c.sees("permission denied")
	})
}

func TestFlags(t *testing.T) {
	s := newStore()
	run(t, setup{store: s}, func(c *console) {
		c.press("E") // the first row of the Overview is a flag that is off
		c.sees("Set a flag", "webhook.worker.enabled", "New value       true", "Reason", "now     false")
		c.typing("receiver is back")
		c.press("enter")
		c.rest(quiet)
		c.sees("Set true", "reason", "receiver is back")
		c.press("tab", "enter")
		require.Equal(t, "true", s.did()[0].Request.Args["value"])
		require.Equal(t, []string{"webhook.worker.enabled"}, s.did()[0].Request.Targets)
		c.rest(quiet)
		c.press("enter", "g", "f", "enter")
		c.sees("Changes, newest first", "true → false")
	})
}

func TestRegister(t *testing.T) {
	s := newStore()
	run(t, setup{store: s}, func(c *console) {
		c.press("4", "N")
		c.sees("Register an executor", "Executor id", "external_worker", "Cadence")
		c.press("shift+tab", "shift+tab", "enter") // backwards from the first input to the button Preview, which is last
		c.press("esc", "N")
		c.typing("two words")
		c.press("enter", "enter", "enter", "enter", "enter", "enter")
		c.sees("one word, without spaces")
		require.Empty(t, s.asked())
		for range len("two words") {
			c.press("backspace")
		}
		c.typing("reports_2")
		c.press("enter")
		c.typing("reports")
		c.press("enter", "enter", "enter", "enter", "enter")
		c.rest(quiet)
		require.Equal(t, "reports", s.asked()[0].Args["owner-role"])
		require.Equal(t, "reports_2", s.asked()[0].Args["id"])
		require.Equal(t, "external_worker", s.asked()[0].Args["kind"])
		c.sees("Register reports_2")
	})
}

func TestCommandLine(t *testing.T) {
	s := newStore()
	run(t, setup{store: s, host: newHost()}, func(c *console) {
		c.press(":")
		c.typing("exec")
		c.press("tab")
		c.sees(":executors")
		c.press("tab", "tab")
		c.sees(":executor deregister")
		c.press("tab")
		c.press("esc", ":")
		c.typing("executor deregister iu_outbound_default")
		c.press("enter")
		c.sees("Deregister an executor", "iu_outbound_default", "Reason")
		c.press("esc", ":")
		c.typing("flag set webhook.max_attempts 8")
		c.press("enter")
		c.sees("Set a flag", "8")
		c.press("esc", ":")
		c.typing("flags")
		c.press("enter")
		c.sees("webhook.batch_size")
		c.press(":")
		c.typing("nonsense")
		c.press("enter")
		c.sees("unknown command :nonsense")
		c.press(":")
		c.typing("drain tick")
		c.press("enter")
		c.rest(quiet)
		c.sees("Drain tick")
		c.press("esc", ":", "up")
		c.sees(":drain tick")
		c.press("esc", ":")
		c.typing("quit")
		c.press("enter")
		c.sees("Quit?")
	})
}

// A command without targets has the same targets as a key: the selected rows,
// else the row under the cursor. That holds also for actions that have no key.
func TestCommandActsOnTheRow(t *testing.T) {
	s := newStore()
	for i := range 2 {
		s.deadLetters[i].State = "resolved"
	}
	run(t, setup{store: s, w: 160, h: 40}, func(c *console) {
		targets := func() []string {
			c.press("x", "enter")
			c.rest(quiet)
			all := s.asked()
			require.NotEmpty(t, all)
			return all[len(all)-1].Targets
		}
		c.press("5", "enter", "space", "space")
		c.press(":")
		c.typing("reopen")
		c.press("enter")
		c.sees("Reopen dead letters", "2")
		require.Equal(t, []string{s.deadLetters[0].ID, s.deadLetters[1].ID}, targets())
		c.press("esc", "esc", "esc", "enter", "enter", ":")
		c.typing("reopen")
		c.press("enter")
		require.Equal(t, []string{s.deadLetters[0].ID}, targets(), "of the page")
		c.press("esc", "4", ":")
		c.typing("executor deregister")
		c.press("enter")
		first := targets()
		require.Len(t, first, 1)
		c.press("esc", ":")
		c.typing("deregister")
		c.press("enter")
		c.sees("Deregister an executor")
		require.Equal(t, first, targets(), "the last word is enough where it means one action")
		c.press("esc", "1", ":")
		c.typing("resume")
		c.press("enter")
		c.sees("unknown command :resume; :")
	})
}

// So has a command that has flags only: they are in its form. A filter names rows, also an empty one.
func TestCommandWithFlagsActsOnTheRow(t *testing.T) {
	s := newStore()
	run(t, setup{store: s, w: 160, h: 40}, func(c *console) {
		c.press("5", "enter", "space", "space")
		for line, args := range map[string]map[string]string{
			"resolve --reason 'sent by hand'": {}, "qtop requeue --reason 'sent by hand' --yes": {}, "ops plan --rate 7 --canary=3 --reason 'sent by hand'": {"rate": "7", "canary": "3"},
		} {
			c.press(":")
			c.typing(line)
			c.press("enter")
			c.model(func(m *root) {
				require.Len(t, m.over, 1, "%s %s", line, m.notice.text)
				d := m.over[0].(*dialog)
				require.Equal(t, stageForm, d.stage, line)
				require.Equal(t, []string{s.deadLetters[0].ID, s.deadLetters[1].ID}, d.req.Targets, line)
				for _, f := range d.form {
					if want, ok := args[f.arg.Name]; ok || f.arg.Name == reasonField {
						require.Equal(t, cmp.Or(want, "sent by hand"), f.value(), "%s %s", line, f.arg.Name)
					}
				}
			})
			c.press("esc")
		}
		for _, line := range []string{"requeue --filter '' --reason x", "notifications requeue --reason x"} { // pane 5 has no notifications
			c.press(":")
			c.typing(line)
			c.press("enter")
			c.sees("needs a target")
			require.Zero(t, c.overlays())
		}
	})
}

// After an action, the console must show its effect: it does not
// accept a snapshot that was computed before the action.
func TestReadsAnewAfterItsOwnAction(t *testing.T) {
	s := newStore()
	run(t, setup{store: s}, func(c *console) {
		require.NotContains(t, s.allowed(), time.Duration(0))
		c.press("3", "A")
		c.typing("x")
		c.press("tab", "enter")
		c.rest(quiet)
		c.press("tab", "enter")
		c.rest(quiet)
		require.NotEmpty(t, s.did())
		require.Contains(t, s.allowed(), time.Duration(0))
	})
}

func TestWhoAreYou(t *testing.T) {
	s := newStore()
	named := ""
	run(t, setup{store: s, o: Options{Actor: "root", AnswerActor: func(n string) { named = n }}}, func(c *console) {
		c.press("3", "A")
		c.sees("Who are you?", "acts as root")
		c.typing("root")
		c.press("enter")
		c.sees("this is a shared account")
		for range 4 {
			c.press("backspace")
		}
		c.typing(strings.Repeat("x", 201))
		c.press("enter")
		c.sees("a name must have 1 to 200 characters")
		for range 201 {
			c.press("backspace")
		}
		c.typing("dana")
		c.press("enter")
		c.sees("Acknowledge an alert", "dana")
		require.Equal(t, "dana", named)
		c.typing("x")
		c.press("tab", "enter")
		c.rest(quiet)
		require.Equal(t, "dana", s.asked()[0].Actor)
		c.press("esc", "A")
		c.sees("Acknowledge an alert") // the name was asked for only once
	})
}

func TestHostPane(t *testing.T) {
	h := newHost()
	run(t, setup{host: h, w: 120, h: 40}, func(c *console) {
		c.press("g", "w", "j", "j", "j", "S")
		c.rest(quiet)
		c.sees("Start a loop of this process", "sender", "Not now", "Start sender", "qtop worker --loops sender")
		c.seesNot("LOOP")
		require.Empty(t, h.said())
		c.press("tab", "enter")
		require.Equal(t, []string{"start sender"}, h.said())
		c.rest(quiet)
		c.press("enter", "g", "g", "P")
		c.rest(quiet)
		c.press("tab", "enter")
		require.Equal(t, []string{"start sender", "drain tick"}, h.said())
		c.rest(quiet)
		c.press("enter", "S")
		c.rest(quiet)
		c.sees("loop tick is already running")
		require.Zero(t, c.overlays(), "no dialog opens")
		c.press("T")
		c.sees("there is no tick worker tick")
		c.press("j", "j", "j", "j", "T")
		c.sees("there is no tick worker job_executor")
		require.Zero(t, c.overlays(), "no form with some other tick worker in it")
		c.press("G", "T")
		c.sees("queue.tick.lease_reset_cleaner.interval_seconds is 0")
	})
	run(t, setup{}, func(c *console) {
		c.press("g", "w")
		c.sees("This process cannot run a worker host", "worker-eu-2")
		c.press("S")
		c.sees("Start is off: this process cannot run a worker host")
		c.press("T")
		c.sees("there is no loop of this process")
		require.Zero(t, c.overlays(), "no form with some tick worker in it")
	})
}

func TestQuit(t *testing.T) {
	run(t, setup{}, func(c *console) {
		c.press("q")
		require.True(t, c.ended(), "nothing runs here: at once")
	})
	h := newHost()
	h.wait = make(chan struct{})
	run(t, setup{host: h}, func(c *console) {
		h.wait = make(chan struct{}) // a channel can be used only in the synctest bubble in which it was made
		c.press("q")
		c.sees("Quit?", "Stay", "Drain and quit", "Hand back and quit", "No other live host runs tick: what it does waits until one runs it.")
		c.press("enter")
		c.rest(quiet)
		c.press("enter") // the button Stay
		require.False(t, c.ended())
		require.Zero(t, c.overlays())
		c.press("q")
		c.rest(quiet)
		c.press("tab", "enter")
		c.sees("Draining", "4 in flight")
		require.False(t, c.ended())
		close(h.wait)
		require.True(t, c.ended())
		require.Equal(t, []string{"shutdown"}, h.said())
	})
	s, h := newStore(), newHost()
	run(t, setup{store: s, host: h, w: 120, h: 40}, func(c *console) { // the numbers of the question are those of now
		c.press("q")
		c.sees("Loops running in this process: 3.", "Items in flight: 4.", "No other live host runs tick")
		h.mu.Lock()
		h.st.InFlight = 1
		h.mu.Unlock()
		s.set(func(s *fakeStore) {
			s.snap.Hosts = append(slices.Clone(s.snap.Hosts), queue.Host{Instance: "other", Alive: true, Loops: []queue.Text{queue.Clean("tick")}})
		})
		c.rest(10 * time.Second)
		c.sees("Items in flight: 1.")
		c.seesNot("No other live host runs")
	})
	h = newHost()
	run(t, setup{host: h}, func(c *console) {
		h.wait = make(chan struct{})
		defer close(h.wait)
		c.press("ctrl+c")
		c.sees("Draining")
		c.press("ctrl+c")
		require.True(t, c.ended())
		require.Equal(t, []string{"shutdown", "stop "}, h.said())
	})
	run(t, setup{host: newHost()}, func(c *console) {
		c.press("ctrl+z")
		c.sees("ctrl+z is off")
	})
}

// A mark can be set only from the command line, with a dialog and a preview
// like every action.
func TestMarkFromTheCommandLine(t *testing.T) {
	s := newStore()
	run(t, setup{store: s}, func(c *console) {
		c.press(":")
		c.typing("mark deploy 4.2")
		c.press("enter")
		c.sees("Mark the history lines", "deploy 4.2", "Preview")
		c.press("enter")
		c.rest(quiet)
		c.sees("Not now", "Mark", "cannot be undone")
		require.Equal(t, queue.Request{Action: queue.ActMark, Actor: "anna", Args: map[string]string{"label": "deploy 4.2"}}, last(s.asked()))
		c.press("enter") // the safe button has the focus when the preview opens
		require.Empty(t, s.did())

		c.press(":")
		c.typing("mark")
		c.press("enter")
		c.sees("Mark the history lines", "Label")
		c.typing("rollback")
		c.press("enter")
		c.rest(quiet)
		c.press("tab", "enter")
		require.Len(t, s.did(), 1)
		require.Equal(t, "rollback", s.did()[0].Request.Args["label"])
	})
}
