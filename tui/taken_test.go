package tui

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views/viewstest"
)

// The preview for some rows of a filtered list has a further button for all
// rows that match the filter, with their number and endpoints. That button
// leads to a separate preview, also after ctrl+a.
func TestAllThatMatchIsASecondButton(t *testing.T) {
	for _, choose := range [][]string{nil, {"space", "space"}, {"ctrl+a"}} {
		s := newStore()
		run(t, setup{store: s, h: 40, w: 100}, func(c *console) {
			c.press("5", "enter")
			c.press(choose...)
			c.press("R")
			c.typing("back")
			c.press("enter")
			c.rest(quiet)
			c.sees("All 4,640 that match", "hooks.acme.example:443 (4600), api.slow.example:443 (40)")
			const within = "source=webhook code=HTTP_503 subscription=7 domain=billing"
			require.Equal(t, within, s.asked()[0].Within)
			require.NotEmpty(t, s.asked()[0].Targets)
			c.press("shift+tab", "enter") // shift+tab goes to the last button
			c.rest(quiet)
			require.Empty(t, s.did(), "it plans, and carries nothing out")
			require.Len(t, s.asked(), 2)
			require.Equal(t, within, s.asked()[1].Filter)
			require.Empty(t, s.asked()[1].Targets)
			require.Equal(t, "back", s.asked()[1].Reason)
			c.sees("type 4638") // the number of rows in the plan
			c.seesNot("that match ]")
		})
	}
}

// The form of an action names its targets: one row, several rows, groups, the
// row of an open page, the targets of a typed command.
func TestFormSaysWhatIsTaken(t *testing.T) {
	for _, x := range []struct {
		keys []string
		want []string
	}{
		{[]string{"5", "R"}, []string{"target", "HTTP_503 at hooks.acme.example", "all that match"}},
		{[]string{"5", "space", "space", "N"}, []string{"targets", "2 groups: HTTP_503 at hooks.acme.example", "TIMEOUT at "}},
		{[]string{"5", "enter", "R"}, []string{"HTTP_503 at hooks.acme.example (91000)"}},
		{[]string{"5", "enter", "space", "space", "R"}, []string{"2: HTTP_503 at hooks.acme.example (91000, 90999)"}},
		{[]string{"5", "enter", "enter", "C"}, []string{"HTTP_503 at hooks.acme.example (91000)"}},
		{[]string{"7", "D"}, []string{"hooks.acme.example for "}},
		{[]string{"5", "enter", ":", "requeue 90999", "enter"}, []string{"HTTP_503 at hooks.acme.example (90999)"}},
	} {
		run(t, setup{w: 120, h: 40}, func(c *console) {
			for _, k := range x.keys {
				if len(k) > 7 {
					c.typing(k)
					continue
				}
				c.press(k)
			}
			require.Equal(t, 1, c.overlays(), "%v", x.keys)
			c.sees(x.want...)
		})
	}
}

// A form names the rows that its action takes, and no others: not the selected rows of the table below,
// and not rows of another kind that have the same number.
func TestFormNamesNoOtherRow(t *testing.T) {
	for _, x := range []struct {
		keys []string
		line string
		want string
	}{
		{[]string{"7", "G", "space", "g", "g", "D"}, "", `^hooks\.acme\.example for order\.created \(5\)$`},
		{[]string{"7", "ctrl+a", "g", "g", "E"}, "", `^hooks\.acme\.example for order\.created \(5\)$`},
		{[]string{"7", "G", "D"}, "", `^hooks\.partner\.example for user\.signed_up \(2\)$`},
		{[]string{"7", "j", "L"}, "", `^delivery to api\.slow\.example by bastion-1/5b1f77aa \(88001\)$`},
		{[]string{"8", "G", "space", "g", "g", "C"}, "", `^[a-z.]+ in [a-z]+$`},
		{[]string{"4", "O"}, "", `^[A-Za-z_]+$`},
		{[]string{"g", "s"}, "webhook disable 3", "^3(,|$)"},
		{[]string{"g", "s"}, "ops abort 3", "^3(,|$)"},
		{[]string{"7"}, "lease release 5", "^5(,|$)"},
		{[]string{"7"}, "endpoint suspend 12", `^api\.slow\.example for invoice\.sent \(12\)$`},
	} {
		s := newStore()
		run(t, setup{store: s, w: 120, h: 40}, func(c *console) {
			c.press(x.keys...)
			if x.line != "" {
				c.press(":")
				c.typing(x.line)
				c.press("enter")
			}
			taken := ""
			c.model(func(m *root) {
				if len(m.over) == 1 {
					taken = m.over[0].(*dialog).taken[0].Value.String()
				}
			})
			require.Regexp(t, x.want, taken, "%v %s", x.keys, x.line)
		})
	}
}

// A form shows the number of its target unless the name has it as a word: a port may contain it.
func TestFormShowsTheNumber(t *testing.T) {
	for title, want := range map[string]string{
		"crm.example:39697 for user.invited": "crm.example:39697 for user.invited (7)", "job 7": "job 7", "7": "7",
	} {
		require.Equal(t, want, takenLines([]string{title}, queue.Request{Targets: []string{"7"}})[0].Value.String())
	}
}

// A form that knows only the numbers of its targets reads their names, with the plan of its request:
// that the row is not on the screen, or that the page was opened without its list, makes no
// difference. The form takes keys meanwhile, and without an answer it has the numbers.
func TestFormReadsTheNames(t *testing.T) {
	const names = "1 of 1: HTTP_503 at hooks.acme.example"
	named := queue.Plan{Count: 1, Lines: []queue.PlanLine{{Label: "dead letters", Value: queue.Clean(names)}, {Label: "to", Value: queue.Clean("1 × hooks.acme.example")}}}
	for _, x := range []struct {
		line   string
		plan   queue.Plan
		err    error
		before string
		after  []string
	}{
		{"requeue 4812", named, nil, "4812, its name is being read", []string{"4812  ", names}},
		{"requeue 4812 4813", named, nil, "2: 4812, 4813; their names are being read", []string{"2: 4812, 4813  ", names}},
		{"resolve job:0190c2f0-0000-7000-8000-000000000001", named, nil, "job:0190c2f0-0000-7000-8000-000000000001, its name is being read", []string{names}},
		{"requeue 4812", queue.Plan{Refused: "there is no dead letter 4812"}, nil, "4812, its name is being read", []string{"refused", "there is no dead letter 4812"}},
		{"requeue 4812", queue.Plan{}, errors.New("no connection"), "4812, its name is being read", []string{"4812  "}},
		{"executor deregister mailer", named, nil, "", []string{"mailer"}},
	} {
		s := newStore()
		s.plan = func(r queue.Request) (queue.Plan, error) {
			time.Sleep(time.Second) // virtual time: as long as the database takes
			p := x.plan
			p.Request = r
			return p, x.err
		}
		run(t, setup{store: s, w: 120, h: 40}, func(c *console) {
			c.press("2", ":")
			c.typing(x.line)
			c.press("enter")
			if x.before == "" {
				c.seesNot("being read")
				require.Empty(t, s.asked(), "its target has a name")
				return
			}
			c.sees(x.before)
			c.typing("ba")
			c.rest(time.Second)
			c.sees(x.after...)
			c.seesNot("being read")
			c.typing("ck")
			c.press("enter")
			c.rest(time.Second + quiet)
			require.Len(t, s.asked(), 2)
			require.Equal(t, "back", s.asked()[1].Reason, "keys were taken meanwhile")
			require.Empty(t, s.did())
		})
	}
}

// An answer that comes after the preview, or for a form that is closed, changes nothing.
func TestLateNamesAreDropped(t *testing.T) {
	s := newStore()
	first := true
	s.plan = func(r queue.Request) (queue.Plan, error) {
		label := "the plan"
		if first {
			first = false
			time.Sleep(2 * time.Second)
			label = "late names"
		}
		return queue.Plan{Request: r, Count: 1, Lines: []queue.PlanLine{{Label: label, Value: queue.Clean("x")}}}, nil
	}
	run(t, setup{store: s, w: 120, h: 40}, func(c *console) {
		c.press("2", ":")
		c.typing("requeue 4812")
		c.press("enter")
		c.typing("back")
		c.press("enter")
		c.rest(quiet)
		c.sees("the plan", "[ Requeue")
		c.rest(2 * time.Second)
		c.sees("the plan", "[ Requeue")
		c.seesNot("late names")
		c.press("esc")
		require.Zero(t, c.overlays())
	})
}

// The dialog of an action on many groups counts what they stand for, and shows only some of their
// filters; the command that does the same is complete.
func TestManyGroupsAreCounted(t *testing.T) {
	s := newStore()
	s.snap.DeadGroups = nil
	for i := range 73 {
		g := queue.DeadGroup{Source: "webhook", Code: queue.Clean("HTTP_503"), SubscriptionID: int64(i + 1), Domain: queue.Clean("webhook"), Endpoint: queue.Clean(fmt.Sprintf("hook%d.example", i%40)), Open: 20, FirstAt: s.snap.TakenAt.Add(-time.Hour)}
		if i > 69 {
			g.Source, g.SubscriptionID, g.Endpoint = "job", 0, queue.Clean("mail.send")
			g.Domain = queue.Clean(fmt.Sprint("d", i))
		}
		s.snap.DeadGroups = append(s.snap.DeadGroups, g)
	}
	for _, h := range []int{24, 60} {
		run(t, setup{store: s, w: 120, h: h}, func(c *console) {
			c.press("5", "ctrl+a", "N")
			c.sees("73 groups: ", "total", "1,460 open dead letters: 40 endpoints, 1 job kind")
			c.seesNot("subscription=9 ")
			if h > 24 {
				c.seesNot("more line")
				require.Regexp(t, `… +│.*\n.*│ +and 70 more`, c.screen())
			}
			c.typing("x")
			c.press("enter")
			c.rest(quiet)
			asked := s.asked()
			require.Len(t, asked[len(asked)-1].Filters(), 73)
			c.press("esc", "/")
			c.typing("age>1s")
			c.press("enter", "N")
			c.sees("at most 1,460 open dead letters")
		})
	}
}

// Selected rows that a filter hides stay selected. An action leaves them out,
// and its dialog counts them.
func TestHiddenRowsAreNotTaken(t *testing.T) {
	const slow = "source=webhook code=TIMEOUT subscription=9 domain=iu"
	s := newStore()
	run(t, setup{store: s, w: 120, h: 40}, func(c *console) {
		c.press("5", "space", "space", "/")
		c.typing("code:TIMEOUT")
		c.press("enter", "N")
		c.sees("not taken", "1 selected row that the filter hides")
		c.model(func(m *root) {
			require.Equal(t, []string{slow + " code:TIMEOUT"}, m.over[0].(*dialog).req.Filters())
		})
		c.typing("x")
		c.press("enter")
		c.rest(quiet)
		c.sees("not taken", "1 selected row that the filter hides")
		c.press("esc", "/")
		c.typing(" domain:nowhere")
		c.press("enter", "R")
		c.sees("the filter hides all 2 selected rows")
		require.Zero(t, c.overlays())
		c.press("esc", "R") // without the filter both rows are shown, so both are targets
		c.model(func(m *root) { require.Len(t, m.over[0].(*dialog).req.Filters(), 2) })
	})
	// If the database applies the filter, rows that do not match are not even
	// loaded, so they do not stay selected.
	s = newStore()
	run(t, setup{store: s, w: 120, h: 40}, func(c *console) {
		c.press("5", "enter", "space", "space", "/")
		s.set(func(s *fakeStore) { s.deadLetters = viewstest.DeadLetters(40)[1:] })
		c.typing("age>1h")
		c.press("enter")
		c.sees("1 selected row is gone, hidden or not loaded now; still selected: 1")
		c.press("R")
		c.model(func(m *root) { require.Equal(t, []string{"90999"}, m.over[0].(*dialog).req.Targets) })
	})
}

// A typed command can reveal a payload from any pane: the page that shows the
// payload opens below the dialog.
func TestRevealCommandOpensThePage(t *testing.T) {
	for _, x := range []struct {
		line string
		pane queue.PaneID
		id   string
	}{
		{"qtop dlq show 90990 --reveal --reason x", queue.PaneDead, "90990"},
		{"job show 0190c2f0-0000-7000-8000-000000000001 --reason x --reveal", queue.PaneQueues, "0190c2f0-0000-7000-8000-000000000001"},
	} {
		run(t, setup{w: 120, h: 40}, func(c *console) {
			c.press("2", ":")
			c.typing(x.line)
			c.press("enter")
			c.rest(quiet)
			c.model(func(m *root) {
				require.Len(t, m.over, 1, m.notice.text)
				require.Equal(t, queue.ActReveal, m.over[0].(*dialog).action.ID)
				require.Equal(t, x.pane, m.at)
				require.Equal(t, x.id, m.pane().top().id)
			})
		})
	}
}
