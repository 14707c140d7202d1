//go:build !race

package tui

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/charmbracelet/x/ansi"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/actions"
	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
	"github.com/qtop/qtop/views/viewstest"
)

// guardName is the name of a guarded database with blanks, a quotation mark and dashes.
const guardName = "it's --prod eu"

// A dialog prints the qtop command that does the same. Typed after ":", that
// command opens a dialog with the same plan.
func TestPrintedCommandOpensTheSamePlan(t *testing.T) {
	for _, a := range actions.Registry() {
		if a.Local() || a.ID == queue.ActReveal {
			continue // covered by TestPrintedCommandOfEveryDialog
		}
		t.Run(string(a.ID), func(t *testing.T) {
			var requests []queue.Request
			base := func() queue.Request {
				r := queue.Request{Action: a.ID, Actor: "anna", Args: map[string]string{}}
				if a.Reason {
					r.Reason = "it's  back, --really"
				}
				for _, arg := range a.Args {
					switch {
					case arg.Default != "":
						r.Args[arg.Name] = arg.Default
					case len(arg.Options()) > 0:
						r.Args[arg.Name] = arg.Options()[0]
					case arg.Positional && arg.Kind == queue.ArgWord:
						r.Args[arg.Name] = queue.Choose(a.Targets.Of == "tick worker", "metrics_sampler", "one")
					default:
						r.Args[arg.Name] = `x "y" -1`
					}
				}
				return r
			}
			if free := a.Free(); a.Targets.Name == "" || a.Danger == queue.DangerDatabase {
				requests = append(requests, base())
				if a.Danger == queue.DangerDatabase { // the plan of such an action names the database
					requests[0].Targets = []string{"staging_copy"}
				}
				if a.Targets.Name == "" && free.Kind == queue.ArgWord {
					requests[0].Targets = []string{requests[0].Args[free.Name]}
				}
			} else {
				r := base()
				r.Targets = []string{"-a b'c"}
				if a.Targets.Many {
					for range 30 { // so many targets that the command needs several lines
						r.Targets = append(r.Targets, "job:0190")
					}
				}
				requests = append(requests, r)
			}
			if a.Targets.Instead == "filter" {
				r := base()
				r.Filter, r.Or = `code=HTTP_503 endpoint="a b"`, []string{"source=job code:it's*"}
				requests = append(requests, r)
			}
			if a.Targets.Instead == "all" {
				requests = append(requests, base())
			}
			for i := range requests { // and in a guarded database, whose name needs quotes
				r := requests[i]
				if r.Confirm = ""; a.Guards() {
					r.Confirm = guardName
				}
				requests = append(requests, r)
			}
			for _, want := range requests {
				s := newStore()
				s.snap.Server.CloneOf = queue.Clean("another database")
				if want.Confirm != "" {
					s.session.Environment = queue.Environment{Name: queue.Clean(guardName), Guarded: true}
				}
				m := newStill(s, nil, Options{Actor: "anna"})
				cmd := m.command(a.Command(want))
				require.NotNil(t, cmd, "%s: %s", a.Command(want), m.notice.text)
				require.Len(t, m.over, 1)
				d, ok := m.over[0].(*dialog)
				require.True(t, ok)
				got := d.req
				if a.Targets.Name == "" || a.Danger == queue.DangerDatabase {
					want.Targets, got.Targets = nil, nil
				}
				for name, v := range got.Args {
					if v == "" {
						delete(got.Args, name)
					}
				}
				require.Equal(t, want, got, a.Command(want))
				if a.Free().Name == "" || len(a.Args) > 1 || a.Reason {
					require.Equal(t, stagePlanning, d.stage, a.Command(want))
				}
			}
		})
	}
}

// A dialog prints the whole command, however long it is, even on a screen of
// 80×24. Typed after ":", the command opens the dialog of the same action with
// the same targets.
func TestPrintedCommandOfEveryDialog(t *testing.T) {
	for _, a := range actions.Registry() {
		t.Run(string(a.ID), func(t *testing.T) {
			s := newStore()
			s.snap.Server.CloneOf = queue.Clean("another database")
			m := newStill(s, newHost(), Options{Actor: "anna"})
			m.resize(views.Size{W: 80, H: 24})
			req := queue.Request{Action: a.ID, Actor: "anna", Args: map[string]string{}, Reason: "the receiver is back since 02:50, see incident 4711"}
			for _, arg := range a.Args {
				req.Args[arg.Name] = cmp.Or(arg.Default, append(arg.Options(), "one")[0])
			}
			switch {
			case a.ID == queue.ActReveal:
				req.Targets = []string{"90990"}
			case a.Local():
				req.Targets, req.Reason = []string{viewstest.Host().Loops[0].Name}, ""
			case a.Targets.Many:
				for i := range 60 {
					req.Targets = append(req.Targets, fmt.Sprintf("job:01900000-0000-7000-8000-%012d", i))
				}
			case a.Targets.Name != "":
				req.Targets = []string{"subject"}
			}
			cmd := m.ask(asked{action: a, req: req, ready: true})
			require.NotNil(t, cmd)
			d := m.over[0].(*dialog)
			p, _ := s.Plan(t.Context(), req)
			p.Command = queue.Choose(a.ID == queue.ActReveal, "qtop dlq show 90990 --reveal --reason 'incident 4711'", a.Command(req))
			if a.Local() {
				p = m.planHere(req)
				p.Refused = ""
			}
			d.preview(p, false, m.o.Now())
			printed := printedCommand(m.root, d)
			require.Equal(t, strings.ReplaceAll(d.plan.Command, " ", ""), printed)

			m.over = nil
			require.NotNil(t, m.command(strings.TrimPrefix(d.plan.Command, ":")), m.notice.text)
			require.Len(t, m.over, 1, "%s: %s", d.plan.Command, m.notice.text)
			got := m.over[0].(*dialog)
			require.Equal(t, a.ID, got.action.ID, d.plan.Command)
			if a.Targets.Name != "" && a.Danger != queue.DangerDatabase {
				require.Equal(t, req.Targets, got.req.Targets)
			}
			require.NotNil(t, m.command(d.plan.Command), "also with the leading colon")
		})
	}
}

// printedCommand scrolls through a dialog and returns the command that it prints, without blanks.
func printedCommand(m *root, d *dialog) string {
	var all []string
	for end := false; !end; d.offset++ {
		frame := d.lines(m.overlayContext())[1:]
		for i := range frame {
			frame[i] = strings.Trim(ansi.Strip(frame[i]), "│ ")
		}
		first := slices.IndexFunc(frame, func(s string) bool { return strings.HasPrefix(s, "same as") })
		for _, line := range frame[max(first, 0):] {
			if end = strings.HasPrefix(line, "undo "); end || strings.Contains(line, "more line") {
				break // the command ends above the buttons
			}
			if (first >= 0 || len(all) > 0) && !slices.Contains(all, line) {
				all = append(all, line)
			}
		}
	}
	return strings.TrimPrefix(strings.Join(strings.Fields(strings.Join(all, " ")), ""), "sameas")
}

// In a guarded database the command that a dialog prints, and the one that undoes the action, have
// the name as a flag, in front of texts that begin with a dash.
func TestPrintedCommandsConfirm(t *testing.T) {
	s := newStore()
	s.session.Environment = queue.Environment{Name: queue.Clean(guardName), Guarded: true}
	const confirm = ` --confirm 'it'\''s --prod eu'`
	m := newStill(s, nil, Options{Actor: "anna"})
	require.NotNil(t, m.command("mark -- -deploy"), m.notice.text)
	d := m.over[0].(*dialog)
	d.form[0].input.SetValue("-deploy")
	require.NotNil(t, d.submit())
	require.Equal(t, "qtop mark"+confirm+" -- -deploy", actions.Registry().ByID(queue.ActMark).Command(d.req))

	for _, a := range actions.Registry() {
		req := queue.Request{Action: a.ID, Args: map[string]string{}, Reason: "r", Confirm: guardName, Targets: []string{"-7"}}
		for _, arg := range a.Args {
			req.Args[arg.Name] = cmp.Or(arg.Default, append(arg.Options(), "-one")[0])
		}
		o := actions.Registry().ByID(a.Opposite)
		if line := actions.Registry().UndoCommand(req); line != "" && o.Guards() {
			words, ok := queue.SplitWords(line)
			require.True(t, ok, line)
			i := slices.Index(words, "--confirm")
			require.Positive(t, i, line)
			require.Equal(t, guardName, words[i+1], line)
			if end := slices.Index(words, "--"); end >= 0 {
				require.Less(t, i, end, line)
			}
		}
	}
}
