package views_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/charmbracelet/x/ansi"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
	"github.com/qtop/qtop/views/theme"
	"github.com/qtop/qtop/views/viewstest"
)

// drawn fills each part of a layout with its own character, so that a test can
// see where it is.
func drawn(l views.Layout, w, h int) string {
	rows := make([]string, h)
	for i := range rows {
		rows[i] = strings.Repeat(".", w)
	}
	for char, r := range map[string]views.Rect{"h": l.Header, "t": l.Tabs, "!": l.Banner, "b": l.Body, "s": l.Status, "f": l.Footer} {
		for y := r.Y; y < r.Y+r.H; y++ {
			rows[y] = rows[y][:r.X] + strings.Repeat(char, r.W) + rows[y][r.X+r.W:]
		}
	}
	for i := range rows { // all columns of a row are alike
		rows[i] = rows[i][:1] + strings.TrimLeft(rows[i], rows[i][:1])
	}
	return strings.Join(rows, "")
}

func TestLayout(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		w, h, banners int
		want          string
	}{
		{60, 15, 0, "ht" + strings.Repeat("b", 11) + "sf"},
		{80, 24, 0, "ht" + strings.Repeat("b", 20) + "sf"},
		{80, 24, 2, "ht!!" + strings.Repeat("b", 18) + "sf"},
		{200, 60, 1, "ht!" + strings.Repeat("b", 55) + "sf"},
		{60, 15, 9, "ht!!!" + strings.Repeat("b", 8) + "sf"},
		{59, 24, 0, ""}, {80, 14, 0, ""}, {1, 1, 0, ""}, {0, 0, 0, ""}, {-3, -9, 0, ""},
	} {
		l, ok := views.Split(c.w, c.h, c.banners)
		require.Equal(t, c.want != "", ok, "%dx%d", c.w, c.h)
		if ok {
			require.Equal(t, c.want, drawn(l, c.w, c.h), "%dx%d with %d banners", c.w, c.h, c.banners)
		}
	}
}

// If there are more banners than lines, the last line names those that have no line.
func TestMoreBannersThanLines(t *testing.T) {
	t.Parallel()
	e := env(theme.Options{Depth: theme.Mono})
	all := []views.Banner{
		{Word: "CLONE OF", Text: "orders", Alarm: true}, {Word: "UNEXPECTED SERVER", Text: "db2", Alarm: true}, {Word: "NOT FRESH", Text: "since 10:00"},
		{Word: "MONITORING OFF", Text: "change it", Alarm: true}, {Word: "SCHEMA", Text: "run qtop migrate up"},
	}
	for n := range len(all) + 1 {
		got := views.WrapBanners(all[:n], e, 80)
		require.Len(t, got, min(n, views.MaxBanners))
		text := ""
		for _, b := range got {
			text += ansi.Strip(b.Line(e, 80)) + "\n"
		}
		for _, b := range all[:n] {
			require.Contains(t, text, b.Word)
		}
		if n > 0 {
			require.Contains(t, text, all[n-1].Text)
		}
	}
	require.Equal(t, "NOT FRESH", all[2].Word, "what was passed is not changed")
}

// Every size from 1×1 to 250×80: no panic, no line that is too wide, and from 60×15 on every
// line is exactly as wide as the screen.
func TestEverySize(t *testing.T) {
	t.Parallel()
	for _, w := range []viewstest.World{viewstest.RichWorld(), viewstest.EmptyWorld(), viewstest.HostileWorld("漢字👩‍👩‍👧‍👦\x1b[31m")} {
		all := bodies(w)
		names := make([]string, 0, len(all))
		for name := range all {
			names = append(names, name)
		}
		e := env(theme.Options{Depth: theme.Rich})
		n := 0
		for width := 1; width <= 250; width += 1 + width/10 {
			for height := 1; height <= 80; height += 1 + height/4 {
				n++
				size := views.Size{W: width, H: height}
				name := names[n%len(names)]
				got := screen(w, name, all[name], e, size)
				if width >= views.MinWidth && height >= views.MinHeight {
					requireFits(t, got, size)
				}
				lines := strings.Split(got, "\n")
				require.LessOrEqual(t, len(lines), height)
				for _, box := range [][]string{dialogOf("some words to wrap").Lines(e, size), picksOf("words").Lines(e, size)} {
					lines = append(lines, strings.Split(views.Overlay(got, box, 0, 0, size), "\n")...)
				}
				for _, line := range lines {
					require.LessOrEqual(t, theme.Width(line), max(width, 8), "%s at %v", name, size)
				}
				all[name](e, size) // the pane alone must not panic either; Screen.Draw would show TooSmall instead
			}
		}
	}
}

func TestWorstRowStays(t *testing.T) {
	t.Parallel()
	s := viewstest.Rich()
	for h := 11; h < 60; h++ {
		v := views.Overview(views.OverviewState{Snapshot: &s}, env(theme.Options{}), views.Size{W: 80, H: h})
		text := strings.Join(v.Lines, "\n")
		require.LessOrEqual(t, len(v.Lines), h)
		require.Contains(t, text, "webhook.worker.enabled", "height %d", h)
		if h >= 14 {
			require.Contains(t, text, "iu_outbound_default", "height %d", h)
			require.Contains(t, text, "HTTP_503", "height %d", h)
			require.Contains(t, text, "webhook hooks.acme", "height %d", h)
		}
		if h < 20 {
			require.Contains(t, text, "more", "height %d: what is not shown is counted", h)
		}
	}
}

// If a table has more rows than fit, its heading says how many. That number
// never touches the name of the next column.
func TestHowManyMoreKeepsApart(t *testing.T) {
	t.Parallel()
	s := viewstest.Rich()
	for len(s.DeadGroups) < 1200 {
		s.DeadGroups = append(s.DeadGroups, s.DeadGroups...)
	}
	for _, width := range []int{60, 80, 120, 200} {
		v := views.Overview(views.OverviewState{Snapshot: &s}, env(theme.Options{}), views.Size{W: width, H: 24})
		text := ansi.Strip(strings.Join(v.Lines, "\n"))
		require.Regexp(t, `DEA?D? \+[0-9,.k]+( more)? +endpoin`, text, "%d wide", width)
		require.Regexp(t, `WAITING.* \+[0-9]+( more)? +oldest`, text, "%d wide", width)
	}
}

// On the smallest screen a dialog shows its whole text and a long error by scrolling, however many
// fields it has, and always its buttons.
func TestDialogOnTheSmallestScreen(t *testing.T) {
	t.Parallel()
	e, size := env(theme.Options{Depth: theme.Mono}), views.Size{W: views.MinWidth, H: views.MinHeight}
	var failure, fields = []string{}, []views.Field{}
	for i := range 200 {
		failure = append(failure, fmt.Sprintf("<%d>", i))
	}
	for i := range 7 {
		fields = append(fields, views.Field{Label: fmt.Sprintf("field %d", i), Help: "what it is for"})
	}
	refused := slices.Clone(fields) // a long text was pasted into one field: the error quotes it
	refused[5].Error = `"` + strings.Repeat("lorem ipsum ", 200) + `" is not a number`
	target := []queue.PlanLine{{Label: "target", Value: queue.Clean("codex_indexer")}, {Label: "now", Value: queue.Clean("kg.reindex in kg")}}
	for name, x := range map[string]struct {
		d     views.Dialog
		wants []string
	}{
		"error":   {views.Dialog{Intro: []string{"Nothing was changed."}, Error: strings.Join(failure, " ")}, slices.Concat(failure, []string{"Nothing was changed."})},
		"refused": {views.Dialog{Facts: target, Error: strings.Join(failure, " ")}, slices.Concat(failure, []string{"codex_indexer", "kg.reindex in kg"})},
		"fields":  {views.Dialog{Facts: target, Fields: fields, Hint: "enter continues"}, []string{"codex_indexer", "kg.reindex in kg", "field 0", "field 6", "what it is for"}},
		"mistake": {views.Dialog{Facts: target, Fields: refused, Focus: 5, Hint: "enter continues"}, []string{"codex_indexer", "kg.reindex in kg", "field 0", "field 6", "lorem ipsum"}},
	} {
		for _, buttons := range [][]string{{"Close", "Preview again"}, {"Keep", "Requeue 10,000 selected", "All at least 100,000 that match"}} {
			d := x.d
			if len(buttons) > 2 && len(d.Fields) > 0 {
				continue // only a preview has three, and it has no fields
			}
			d.Buttons = buttons
			seen := ""
			for at, end := 0, false; !end; at += d.Shown(e, size) {
				end = at >= d.Last(e, size)
				d.Offset = at
				lines := d.Lines(e, size)
				require.LessOrEqual(t, len(lines), size.H-2, name)
				frame := ansi.Strip(strings.Join(lines, "\n"))
				for i, b := range buttons {
					if d.Focus != len(d.Fields)+i {
						b = "[ " + b + " ]"
					}
					require.Contains(t, frame, b, name)
				}
				seen += frame
			}
			require.Equal(t, name == "mistake", strings.Contains(seen, "…"), name)
			for _, want := range x.wants {
				require.Contains(t, seen, want, name)
			}
		}
	}
}

// A preview shows the name of what it changes whole, however long the name is.
func TestDialogShowsNamesWhole(t *testing.T) {
	t.Parallel()
	e := env(theme.Options{Depth: theme.Mono})
	for _, name := range []string{"iu_outbound_default", "iu_notification_worker", "billing_export_of_the_second_warehouse_eu_central_1"} {
		d := views.Dialog{Facts: []queue.PlanLine{{Label: name, Value: queue.Clean("silent for 95h 00m")}, {Label: "for", Value: queue.Clean("30m")}}, Buttons: []string{"Keep"}}
		for _, w := range []int{views.MinWidth, 80, 200} {
			got := plain(d.Lines(e, views.Size{W: w, H: 24}))
			require.Contains(t, got, name, "%d wide", w)
			require.Contains(t, got, "silent for 95h 00m", "%d wide", w)
		}
	}
}

// On the smallest screen a column is left out before the names of the rows are cut to a few cells.
func TestNamesOnTheSmallestScreen(t *testing.T) {
	t.Parallel()
	short := regexp.MustCompile(`(?m)^.{0,4}[^ ]{1,11}…`)
	w, e := viewstest.RichWorld(), env(theme.Options{Depth: theme.Mono})
	for name, body := range bodies(w) {
		if !strings.HasPrefix(name, "page-") {
			require.Empty(t, short.FindAllString(plain(body(e, views.Size{W: views.MinWidth, H: 24})), -1), name)
		}
	}
}

// The help and the error of a field are whole, however wide the screen is.
func TestDialogShowsHelpWhole(t *testing.T) {
	t.Parallel()
	e := env(theme.Options{Depth: theme.Mono})
	help := "pause the operation when this percentage of the last 50 first attempts failed; 0 = never"
	wrong := `"x" is none of DOT, Agent, Hermes, Codex, PG_worker, external_worker, future_Kestra_adapter`
	for _, w := range []int{60, 80, 250} {
		d := views.Dialog{Fields: []views.Field{{Label: "Brake", Help: help}, {Label: "Kind", Error: wrong}}, Buttons: []string{"Preview"}}
		words := strings.Join(strings.Fields(strings.NewReplacer("│", " ").Replace(ansi.Strip(strings.Join(d.Lines(e, views.Size{W: w, H: 24}), " ")))), " ")
		require.Contains(t, words, help, "%d columns", w)
		require.Contains(t, words, wrong, "%d columns", w)
	}
}
