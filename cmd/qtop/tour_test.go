package main

// The tour of the documents: the demo's incident, played key by key on a terminal. `make tour` plays
// it again and writes its screens, a recording and docs/tour.md.

import (
	"cmp"
	"encoding/json"
	"fmt"
	"image/color"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"
	"github.com/charmbracelet/x/vt"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/pgtest"
)

const tourCols, tourRows = 120, 36

// stop is a stop of the tour: what the operator does, and what the screen then shows.
type stop struct {
	name, does, shows string
	play              func(*screen)
}

func stops() []stop {
	return []stop{
		{"overview", "", "The first screen: `iu_outbound_default` has given no sign of life for 95 hours, and has no owner. Below: the longest waiting work with its reasons, and what died.", func(s *screen) {
			s.until("iu_outbound_default")
			s.until("TLS_FAILURE")
			time.Sleep(75 * time.Second) // so that the curves and rates have something to show
		}},
		{"ack", "`j` to the row `iu_outbound_default`, `A`, a comment, `enter`, `enter`", "The preview: what will change, and the same as a command. Nothing has changed yet.", func(s *screen) {
			for range 8 {
				if strings.Contains(s.text(), "acknowledge · A") {
					break
				}
				s.keys("j")
				time.Sleep(200 * time.Millisecond) // until the status line is drawn again
			}
			s.keys("A")
			s.until("Comment")
			s.quiet()
			s.keys("starting it in this console", enter, enter)
			s.until("Not now")
		}},
		{"acked", "`tab`, `enter`, `enter`", "The silence has an owner, and everybody sees who.", func(s *screen) {
			s.quiet()
			s.keys(tab, enter)
			s.until("audit")
			s.quiet()
			s.keys(enter)
			s.gone("audit ")
			s.gone("— nobody —  ")
		}},
		{"host", "`gw`, `/iu_outbound`, `enter`, `S`", "The worker host of this console. The loop can be started here, in this process.", func(s *screen) {
			s.keys("g", "w")
			s.until("webhook_router")
			s.keys("/")
			s.keys(strings.Split("iu_outbound", "")...)
			s.keys(enter)
			s.until("filter iu_outbound")
			s.keys("S")
			s.until("Not now")
		}},
		{"cured", "`tab`, `enter`, `enter`, `1`", "The silence has ended, and the events that waited are routed.", func(s *screen) {
			s.quiet()
			s.keys(tab, enter)
			s.until("Done")
			s.quiet()
			s.keys(enter)
			s.gone("Done")
			s.keys("1")
			s.gone("no live host runs it")
			s.gone("5,70")
		}},
		{"dead", "`5`", "The dead letters, grouped by cause and endpoint.", func(s *screen) {
			s.keys("5")
			s.until("CONNECTION_REFUSED")
		}},
		{"requeue", "`j`, `R`, a reason, `enter`", "The preview of a requeue: how many, where they go, what blocks them, the same as a command, and how to take it back.", func(s *screen) {
			s.keys("j", "R")
			s.until("Reason")
			s.quiet()
			s.keys("the receiver answers again", enter)
			s.until("Keep")
			s.quiet()
		}},
		{"audit", "`esc`, `ga`", "Who did what, when and why. The requeue was not confirmed, so it is not here.", func(s *screen) {
			s.quiet()
			s.keys("\x1b")
			s.gone("Keep")
			s.keys("g", "a")
			s.until("starting it in this console")
		}},
	}
}

// TestTour plays the tour and writes it with -update. Without it, the test requires that the stored
// first screen has the panes and key hints of today's first screen.
func TestTour(t *testing.T) {
	t.Parallel()
	docs := filepath.Join("..", "..", "docs")
	if *update {
		playTour(t, docs)
		return
	}
	stored, err := os.ReadFile(filepath.Join(docs, "tour", "overview.svg"))
	require.NoError(t, err)
	drawn := regexp.MustCompile(`<[^>]*>`).ReplaceAllString(string(stored), "")
	s := openSized(t, tourCols, tourRows, pgtest.New(t).DSN(""))
	s.until("NO HOST")
	lines := strings.Split(s.text(), "\n")
	for _, line := range []string{lines[1], lines[tourRows-1]} {
		for _, word := range regexp.MustCompile(`\p{L}+`).FindAllString(line, -1) {
			require.Contains(t, drawn, word, "docs/tour is older than the screens: make tour plays it again")
		}
	}
}

func playTour(t *testing.T, docs string) {
	t.Helper()
	dir := filepath.Join(docs, "tour")
	require.NoError(t, os.MkdirAll(dir, 0o755))
	s := onScreen(t, tourCols, tourRows, qtop(t, "", "demo"))
	var page, cast strings.Builder
	page.WriteString("# Tour\n\nThe demo's incident, key by key: `make demo`, then the keys below. `make tour` plays it on the real program and\n" +
		"writes these screens and [tour.cast](tour/tour.cast), a recording for asciinema (`asciinema play docs/tour/tour.cast`).\n")
	head, err := json.Marshal(map[string]any{"version": 2, "width": tourCols, "height": tourRows, "title": "qtop: a worker that went silent"})
	require.NoError(t, err)
	cast.Write(append(head, '\n'))
	for i, x := range stops() {
		x.play(s)
		time.Sleep(300 * time.Millisecond) // the rest of the frame
		require.NoError(t, os.WriteFile(filepath.Join(dir, x.name+".svg"), []byte(svg(s.emu)), 0o644))
		fmt.Fprintf(&page, "\n%d. %s%s\n\n   ![%s](tour/%s.svg)\n", i+1, cmp.Or(x.does, "`make demo`")+": ", x.shows, strings.ReplaceAll(x.shows, "`", ""), x.name)
		frame, err := json.Marshal([]any{float64(5 * i), "o", "\x1b[2J\x1b[H" + strings.ReplaceAll(s.emu.Render(), "\n", "\r\n")})
		require.NoError(t, err)
		cast.Write(append(frame, '\n'))
	}
	s.keys("\x03", "\x03")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "tour.cast"), []byte(cast.String()), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(docs, "tour.md"), []byte(page.String()), 0o644))
}

// svg draws what the terminal shows as SVG: one text element for each run of cells of one style.
func svg(emu *vt.SafeEmulator) string {
	const w, h, size = 8.0, 18, 13.3
	const bold, faint, reverse = 1 << 0, 1 << 1, 1 << 5 // bits of a style's Attrs
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace" font-size="%v" xml:space="preserve">`+"\n",
		tourCols*int(w), tourRows*h, size)
	fmt.Fprintf(&b, `<rect width="100%%" height="100%%" fill="%s"/>`+"\n", paper)
	for y := range tourRows {
		for x := 0; x < tourCols; {
			first := emu.CellAt(x, y)
			from, text := x, ""
			for x < tourCols {
				c := emu.CellAt(x, y)
				if c != nil && first != nil && c.Style.String() != first.Style.String() || (c == nil) != (first == nil) {
					break
				}
				if x++; c != nil {
					text += cmp.Or(c.Content, " ")
					x += max(c.Width-1, 0)
				}
			}
			if first == nil {
				continue
			}
			ink, ground := hex(first.Style.Fg, "#d4d7dd"), hex(first.Style.Bg, paper)
			if first.Style.Attrs&reverse != 0 {
				ink, ground = ground, ink
			}
			if ground != paper {
				fmt.Fprintf(&b, `<rect x="%v" y="%d" width="%v" height="%d" fill="%s"/>`+"\n", float64(from)*w, y*h, float64(x-from)*w, h, ground)
			}
			if strings.TrimSpace(text) == "" {
				continue
			}
			for strings.HasPrefix(text, " ") { // blanks at both ends are not drawn
				text, from = text[1:], from+1
			}
			text = strings.TrimRight(text, " ")
			look := ""
			if first.Style.Attrs&bold != 0 {
				look += ` font-weight="bold"`
			}
			if first.Style.Attrs&faint != 0 {
				look += ` opacity="0.6"`
			}
			fmt.Fprintf(&b, `<text x="%v" y="%d" textLength="%v" fill="%s"%s>%s</text>`+"\n", float64(from)*w, y*h+h-5, float64(ansi.StringWidth(text))*w, ink, look,
				strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(text))
		}
	}
	return b.String() + "</svg>\n"
}

const paper = "#16181d"

// hex returns a colour as SVG writes it; otherwise if the cell has none.
func hex(c color.Color, otherwise string) string {
	if c == nil {
		return otherwise
	}
	r, g, b, _ := c.RGBA()
	return fmt.Sprintf("#%02x%02x%02x", r>>8, g>>8, b>>8)
}
