package views_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
	"github.com/qtop/qtop/views/theme"
	"github.com/qtop/qtop/views/viewstest"
)

var update = flag.Bool("update", false, "write the goldens of this run")

var sizes = []views.Size{{W: 80, H: 24}, {W: 120, H: 40}, {W: 200, H: 60}}

// looks are the three variants of which golden files are stored: colour, mono
// and ASCII. Files in colour contain escape sequences, with ESC written as ␛;
// the others are plain text.
var looks = map[string]theme.Options{
	"colour": {Depth: theme.Sixteen},
	"mono":   {Depth: theme.Mono},
	"ascii":  {Depth: theme.Mono, ASCII: true},
}

func env(o theme.Options) views.Env {
	return views.Env{Theme: theme.New(o), Now: viewstest.Now(), Loc: time.UTC}
}

// grid returns a source as a pane shows it after opening.
func grid(src views.Source, marks map[string]bool) views.Grid {
	return views.Grid{Source: src, Order: views.Arrange(src, 0, nil), Selected: marks}
}

// bodies returns, by name, a function for every pane and page that draws it
// with the data of w.
func bodies(w viewstest.World) map[string]func(views.Env, views.Size) []string {
	s := w.Snapshot
	g := func(src views.Source, marks map[string]bool) func(views.Env, views.Size) []string {
		return func(e views.Env, size views.Size) []string { return grid(src, marks).Lines(e, size) }
	}
	page := func(build func(e views.Env, w int) views.Page) func(views.Env, views.Size) []string {
		return func(e views.Env, size views.Size) []string {
			return views.PageView{Page: build(e, size.W)}.Visible(e, size)
		}
	}
	out := map[string]func(views.Env, views.Size) []string{
		"overview": func(e views.Env, size views.Size) []string {
			return views.Overview(views.OverviewState{Snapshot: &s}, e, size).Lines
		},
		"health": g(views.Health(&s), nil), "alerts": g(views.Alerts(&s), nil), "executors": g(views.Executors(&s), nil),
		"scheduler": g(views.Scheduler(&s), nil),
		"dead":      g(views.DeadGroups(&s), nil), "flags": g(views.Flags(&s), nil), "audit": g(views.Audit(w.Audit), nil),
		"queues": func(e views.Env, size views.Size) []string {
			return views.Queues(&s, grid(views.Lanes(&s, size.W), map[string]bool{"3f2a9484-1111-4222-8333-0123456789ab": true}), e, size)
		},
		"jobs": func(e views.Env, size views.Size) []string {
			return grid(views.Jobs(w.Jobs, size.W), map[string]bool{}).Lines(e, size)
		},
		"activity":   g(views.Activity(w.Sessions), map[string]bool{}),
		"quarantine": g(views.Quarantine(w.Quarantine), nil),
		"ops":        g(views.Operations(w.Operations), nil),
		"webhooks":   g(views.Webhooks(w.Endpoints, w.Leases), map[string]bool{"job 88001": true}),
		"notifications": func(e views.Env, size views.Size) []string {
			head := views.NotificationHead(w.Notifications, e, size.W)
			return append(head, grid(views.Notifications(w.Notifications), nil).Lines(e, views.Size{W: size.W, H: size.H - len(head)})...)
		},
		"subscriptions": func(e views.Env, size views.Size) []string {
			return append(views.BroadcastHead(w.Broadcast, e, size.W), grid(views.EventSubscriptions(w.EventSubscriptions, w.Broadcast), nil).Lines(e, views.Size{W: size.W, H: size.H - views.BroadcastHeadLines})...)
		},
		"dead-letters-event": g(views.DeadLetters(w.EventDeadLetters), map[string]bool{}),
		"dead-letters-job":   g(views.DeadLetters(w.JobDeadLetters), map[string]bool{}),
		"dead-letters":       g(views.DeadLetters(w.DeadLetters), map[string]bool{"90998": true}),
		"host": func(e views.Env, size views.Size) []string {
			top := grid(views.Loops(w.Host), nil).Lines(e, views.Size{W: size.W, H: min(8, size.H)})
			return append(top, views.HostBelow(&s, w.Host, "", e, views.Size{W: size.W, H: size.H - len(top)})...)
		},
	}
	if len(s.Alerts) > 0 {
		out["page-alert"] = page(func(e views.Env, n int) views.Page { return views.AlertPage(s.Alerts[0], &s, w.History, e, n) })
		out["page-executor"] = page(func(e views.Env, n int) views.Page {
			return views.ExecutorPage(s.Executors[0], &s, e, n)
		})
		out["page-flag"] = page(func(e views.Env, n int) views.Page { return views.FlagPage(s.Flags[0], w.Audit, e, n) })
		out["page-health"] = page(func(e views.Env, n int) views.Page { return views.HealthPage(&s, s.Health[0], e, n) })
		held := slices.IndexFunc(s.Health, func(r queue.HealthRow) bool { return s.Holder(r) != nil })
		if held >= 0 {
			out["page-health-held"] = page(func(e views.Env, n int) views.Page { return views.HealthPage(&s, s.Health[held], e, n) })
		}
		out["page-tick"] = page(func(e views.Env, n int) views.Page { return views.TickPage(s.Ticks[0], &s, w.Audit, e, n) })
		out["page-tick-paused"] = page(func(e views.Env, n int) views.Page {
			paused := s
			paused.Flags = append(slices.Clone(s.Flags), viewstest.Paused())
			return views.TickPage(s.Ticks[4], &paused, nil, e, n)
		})
		out["page-mode"] = page(func(e views.Env, n int) views.Page { return views.ModePage(&s, &w.Cron, e, n) })
		out["page-dead-letter"] = page(func(e views.Env, n int) views.Page { return views.DeadLetterPage(w.DeadLetters[0], &w.Detail, e, n) })
		out["page-dead-letter-job"] = page(func(e views.Env, n int) views.Page {
			return views.DeadLetterPage(w.JobDeadLetters[0], &w.JobDeadLetter, e, n)
		})
		out["page-dead-letter-event"] = page(func(e views.Env, n int) views.Page {
			return views.DeadLetterPage(w.EventDeadLetters[0], &w.EventDeadLetter, e, n)
		})
		out["page-dead-letter-revealed"] = page(func(e views.Env, n int) views.Page { return views.DeadLetterPage(w.DeadLetters[0], &w.Revealed, e, n) })
		out["page-executor-subscriptions"] = page(func(e views.Env, n int) views.Page {
			return views.ExecutorPage(s.Executors[4], &s, e, n)
		})
		out["page-job"] = page(func(e views.Env, n int) views.Page { return views.JobPage(w.Jobs[0], &w.Job, e, n) })
		out["page-job-leased"] = page(func(e views.Env, n int) views.Page { return views.JobPage(w.Jobs[0], nil, e, n) })
		out["page-lane"] = page(func(e views.Env, n int) views.Page { return views.LanePage(s.Queues[0], &s, e, n) })
		out["page-lease"] = page(func(e views.Env, n int) views.Page { return views.LeasePage(s.JobLeases[0], e, n) })
		out["page-audit-batch"] = page(func(e views.Env, n int) views.Page { return views.AuditPage(viewstest.AuditBatch(), e, n) })
		out["page-audit"] = page(func(e views.Env, n int) views.Page { return views.AuditPage(w.Audit[0], e, n) })
		out["page-session"] = page(func(e views.Env, n int) views.Page { return views.ActivityPage(w.Sessions[1], w.Sessions, e, n) })
		out["page-slot"] = page(func(e views.Env, n int) views.Page { return views.ActivityPage(w.Sessions[3], w.Sessions, e, n) })
		out["page-operation"] = page(func(e views.Env, n int) views.Page { return views.OperationPage(w.Operations[2], w.Items, e, n) })
		out["page-operation-planned"] = page(func(e views.Env, n int) views.Page { return views.OperationPage(w.Operations[0], nil, e, n) })
		out["page-endpoint"] = page(func(e views.Env, n int) views.Page { return views.EndpointPage(w.Endpoints[0], &w.Endpoint, e, n) })
		out["page-endpoint-slow"] = page(func(e views.Env, n int) views.Page { return views.EndpointPage(w.Endpoints[3], nil, e, n) })
		out["page-event-subscription"] = page(func(e views.Env, n int) views.Page {
			return views.EventSubscriptionPage(w.EventSubscriptions[9], w.Audit, e, n)
		})
		out["page-resolution"] = page(func(e views.Env, n int) views.Page { return views.ResolutionPage("x", &w.Resolution, e, n) })
		out["page-resolution-reached"] = page(func(e views.Env, n int) views.Page { return views.ResolutionPage("x", &w.Reached, e, n) })
		out["page-alert-broadcast"] = page(func(e views.Env, n int) views.Page { return views.AlertPage(s.Alerts[3], nil, w.History, e, n) })
		out["page-webhook-lease"] = page(func(e views.Env, n int) views.Page { return views.WebhookLeasePage(w.Leases[0], e, n) })
		for i, name := range []string{"failure", "group", "run"} {
			src := views.Notifications(w.Notifications)
			out["page-notification-"+name] = page(func(e views.Env, n int) views.Page {
				p, _ := views.NotificationPage(w.Notifications, src.ID([]int{0, 2, src.Len - 2}[i]), e, n)
				return p
			})
		}
		out["page-why"] = page(func(e views.Env, n int) views.Page { return views.WhyPage("x", &w.Why, e, n) })
		out["page-loop"] = page(func(e views.Env, n int) views.Page { return views.LoopPage(w.Host.Loops[5], e, n) })
	}
	return out
}

func screen(w viewstest.World, name string, body func(views.Env, views.Size) []string, e views.Env, size views.Size) string {
	return views.Screen{
		Header: views.Header{Session: &w.Session, Server: &w.Snapshot.Server, Link: queue.Link{State: "live"}, Now: e.Now, Actor: "anna", Profile: "staging"},
		Tabs:   viewstest.Tabs(&w.Snapshot, queue.PaneID(name)),
		Status: views.Status{Left: name, Right: []string{"db 3.1 ms"}},
		Hints:  []views.Hint{{Key: "A", Word: "acknowledge", Off: true}, {Key: "?", Word: "help"}},
	}.Draw(e, size, func(s views.Size) []string { return body(e, s) })
}

// frameTop and frameFoot are the numbers of lines above and below a body.
const frameTop, frameFoot = 2, 2

// TestGoldens compares every pane and page with its golden file, without
// header, tabs and status line: a change of those must not change all these
// files.
func TestGoldens(t *testing.T) {
	t.Parallel()
	for worldName, w := range worlds() {
		for name, body := range bodies(w) {
			for look := range looks {
				for _, size := range sizes {
					lines := strings.Split(fitted(t, w, name, body, look, size), "\n")
					golden(t, goldenName(worldName+"-"+name, size, look), strings.Join(lines[frameTop:len(lines)-frameFoot], "\n"))
				}
			}
		}
	}
}

// TestFramedGoldens compares a few whole screens with their goldens: header, tabs, status and hints
// at every size and in every style, with high counts and with empty ones.
func TestFramedGoldens(t *testing.T) {
	t.Parallel()
	for _, f := range []struct{ world, name, look string }{
		{"rich", "overview", "colour"}, {"rich", "dead", "ascii"}, {"rich", "host", "mono"}, {"empty", "overview", "colour"},
	} {
		w := worlds()[f.world]
		for _, size := range sizes {
			golden(t, goldenName("framed-"+f.world+"-"+f.name, size, f.look), fitted(t, w, f.name, bodies(w)[f.name], f.look, size))
		}
	}
}

func worlds() map[string]viewstest.World {
	return map[string]viewstest.World{"rich": viewstest.RichWorld(), "empty": viewstest.EmptyWorld()}
}

func goldenName(name string, size views.Size, look string) string {
	return fmt.Sprintf("%s-%dx%d-%s", name, size.W, size.H, look)
}

// fitted draws a whole screen and requires that it fits.
func fitted(t *testing.T, w viewstest.World, name string, body func(views.Env, views.Size) []string, look string, size views.Size) string {
	t.Helper()
	got := screen(w, name, body, env(looks[look]), size)
	requireFits(t, got, size)
	if look != "colour" {
		got = ansi.Strip(got)
	}
	return got
}

// requireFits requires exactly as many lines as the screen has, each exactly as wide as the screen.
func requireFits(t *testing.T, got string, size views.Size) {
	t.Helper()
	lines := strings.Split(got, "\n")
	require.Len(t, lines, size.H)
	for _, l := range lines {
		if n := ansi.StringWidth(l); n != size.W {
			require.Failf(t, "a line does not fit", "%d cells instead of %d: %q", n, size.W, ansi.Strip(l))
		}
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	lines := strings.Split(strings.ReplaceAll(got, "\x1b", "␛"), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	got = strings.Join(lines, "\n") + "\n"
	path := filepath.Join("testdata", name+".golden")
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(path, []byte(got), 0o644))
		return
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err, "go test ./views -update writes it")
	require.Equal(t, string(want), got, "%s; if this is meant: go test ./views -update, and look at the difference", path)
}
