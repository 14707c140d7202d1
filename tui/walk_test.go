package tui

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
	"github.com/qtop/qtop/views/viewstest"
)

// walker is the random test of the console: it presses random keys, changes
// data and connection meanwhile, and after each key checks what must always
// hold (method check). It needs no terminal and runs the commands of the model
// itself, in a bubble of testing/synctest with virtual time.
type walker struct {
	t     *testing.T
	rnd   *rand.Rand
	seed  uint64
	store *fakeStore
	host  *fakeHost
	m     *root
	run   *walkerRun
	keys  []string // the latest keys, printed if the test fails

	linkAt  time.Time // when the state of the connection was changed last
	applied int       // how many actions changed something so far
	ended   int       // how often the console was quit
}

// walkerRun receives the messages of one console. When the console quits, the
// walker opens another one with another walkerRun.
type walkerRun struct {
	msgs chan tea.Msg
	done chan struct{}
	quit bool
}

const walkSeed = 20_260_131

func newWalker(t *testing.T, seed uint64) *walker {
	w := &walker{t: t, rnd: rand.New(rand.NewPCG(seed, 1)), seed: seed}
	w.start()
	return w
}

// start opens a console on a new store.
func (w *walker) start() {
	w.store, w.host = newStore(), newHost()
	w.store.kept = []queue.Snapshot{keptAt(time.Hour), keptAt(time.Minute)}
	w.open(Options{Actor: "anna", Save: (&folder{files: map[string]string{}}).save})
}

func keptAt(ago time.Duration) queue.Snapshot {
	p := viewstest.Rich()
	p.TakenAt = p.TakenAt.Add(-ago)
	return p
}

func (w *walker) open(o Options) {
	o.UTC = true
	w.run = &walkerRun{msgs: make(chan tea.Msg, 10_000), done: make(chan struct{})}
	w.m = newRoot(w.t.Context(), w.store, w.host, o)
	w.applied, w.linkAt = len(w.did()), time.Now()
	w.send(tea.WindowSizeMsg{Width: 80, Height: 24})
	w.exec(w.m.Init())
	w.settle()
	w.after(1100 * time.Millisecond)
}

// close ends the console and lets its timers run out.
func (w *walker) close() {
	w.m.cancel()
	close(w.run.done)
	w.after(time.Minute)
}

// exec runs a command of the model. Its message goes to the console only if
// that one is still open.
func (w *walker) exec(cmd tea.Cmd) {
	if cmd == nil {
		return
	}
	r := w.run
	go func() {
		msg := cmd()
		if msg == nil {
			return
		}
		select {
		case <-r.done:
		default:
			r.msgs <- msg
		}
	}()
}

func (w *walker) send(msg tea.Msg) {
	_, cmd := w.m.Update(msg)
	w.exec(cmd)
}

// deliver gives the console a message, as Bubble Tea does.
func (w *walker) deliver(msg tea.Msg) {
	switch msg := msg.(type) {
	case tea.BatchMsg:
		for _, cmd := range msg {
			w.exec(cmd)
		}
	case tea.QuitMsg:
		w.run.quit = true
	default:
		w.send(msg)
	}
}

// settle handles messages until there are none.
func (w *walker) settle() {
	for {
		synctest.Wait()
		select {
		case msg := <-w.run.msgs:
			w.deliver(msg)
		default:
			return
		}
	}
}

// after lets virtual time pass.
func (w *walker) after(d time.Duration) {
	time.Sleep(d)
	w.settle()
}

// press handles one key and everything that follows at once.
func (w *walker) press(k tea.Msg) {
	w.send(k)
	w.settle()
}

// fail ends the test and prints the seed and the latest keys, with which the
// walk can be repeated.
func (w *walker) fail(format string, a ...any) {
	w.t.Helper()
	w.t.Fatalf("%s\nseed %d, after the keys … %s\n%s", fmt.Sprintf(format, a...), w.seed, strings.Join(w.keys, " "), ansi.Strip(w.m.frame()))
}

// note records a key for the message of a failure.
func (w *walker) note(key string) {
	w.keys = append(w.keys, key)
	w.keys = w.keys[max(len(w.keys)-60, 0):]
}

// step presses one random key, or changes data or connection.
func (w *walker) step() {
	key, name := w.pick()
	w.note(name)
	defer func() {
		if p := recover(); p != nil {
			w.t.Fatalf("panic: %v\nseed %d, after the keys … %s\n%s", p, w.seed, strings.Join(w.keys, " "), debug.Stack())
		}
	}()
	if w.rnd.IntN(25) == 0 {
		w.disturb()
	}
	confirms := w.confirms(key)
	was := w.m.notice
	w.press(key)
	if n := w.m.notice; pressed(key) != "" && n.text != "" && n.text == was.text && n.times == was.times {
		w.fail("the message %q outlives a key", n.text)
	}
	w.check(confirms)
	if w.run.quit {
		w.ended++
		w.close()
		w.start()
		return
	}
	if d := w.pause(); d > 0 {
		w.after(d)
		w.check(confirms)
	}
}

// pause returns a random time between two keys: sometimes too short for a
// dialog to accept the second, sometimes as long as a person thinks.
func (w *walker) pause() time.Duration {
	return []time.Duration{0, 50 * time.Millisecond, 450 * time.Millisecond, 450 * time.Millisecond, 1600 * time.Millisecond}[w.rnd.IntN(5)]
}

// pick returns a random key, or a longer text that random keys would hardly
// ever make. The second value describes it for the message of a failure.
func (w *walker) pick() (tea.Msg, string) {
	if d, ok := w.top().(*dialog); ok && w.rnd.IntN(3) > 0 {
		return w.pickInDialog(d)
	}
	if w.m.line.open() && w.rnd.IntN(4) == 0 {
		s := walkWords[w.rnd.IntN(len(walkWords))]
		return tea.PasteMsg{Content: s}, "paste:" + s
	}
	switch w.rnd.IntN(60) {
	case 0:
		s := walkWords[w.rnd.IntN(len(walkWords))]
		return tea.PasteMsg{Content: s}, "paste:" + s
	case 1:
		return tea.MouseWheelMsg{Button: tea.MouseWheelDown}, "wheel"
	case 2:
		return tea.MouseClickMsg{X: w.rnd.IntN(80), Y: w.rnd.IntN(24), Button: tea.MouseLeft}, "click"
	case 3:
		return w.pickWithAlt()
	case 4:
		s := views.Size{W: 60 + w.rnd.IntN(140), H: 15 + w.rnd.IntN(45)}
		return tea.WindowSizeMsg{Width: s.W, Height: s.H}, fmt.Sprintf("size:%dx%d", s.W, s.H)
	}
	k := walkKeys[w.rnd.IntN(len(walkKeys))]
	return keyOf(k), k
}

// pickWithAlt returns a key with alt, as a terminal reports esc and a key that
// arrive together.
func (w *walker) pickWithAlt() (tea.Msg, string) {
	names := slices.Concat(strings.Split(":/?0q1bARCENDOPX", ""), []string{"esc", "tab", "shift+tab", "up", "down", "left", "right", "backspace", "enter"})
	name := names[w.rnd.IntN(queue.Choose(len(w.m.over) > 1, len(names)-1, len(names)))] // with two dialogs open, esc and enter could confirm the lower one
	k := keyOf(name)
	if r := []rune(name)[0]; len(name) == 1 && unicode.IsUpper(r) {
		k.Mod, k.ShiftedCode = tea.ModShift, r
	}
	k.Mod, k.Text = k.Mod|tea.ModAlt, ""
	return k, "alt+" + name
}

// pickInDialog returns keys that fill in a dialog, so that some dialogs are
// confirmed.
func (w *walker) pickInDialog(d *dialog) (tea.Msg, string) {
	k := "enter"
	switch n := d.fields(); {
	case w.rnd.IntN(8) == 0:
		k = []string{"tab", "right", "x", "esc", "enter", "pgdown"}[w.rnd.IntN(6)]
	case d.focus < len(n):
		s := queue.Choose(d.stage == stagePreview, n[d.focus].arg.Name, "5")
		if n[d.focus].value() == "" {
			n[d.focus].input.SetValue(s) // instead of one key press per character
			return tea.KeyPressMsg{Code: tea.KeyEnd}, "type:" + s
		}
	case d.stage == stagePreview && d.focus == len(n):
		k = "tab"
	}
	return keyOf(k), k
}

var walkWords = []string{
	"state:stale", "code:HTTP_503", "hooks", "why x", "why webhook hooks.acme.example:443", "at 45m", "at now", "export x.csv", "flags", "requeue 5",
	"dead", "age>", "!", "\x1b[31m", "1 2 3", "help", "executor x y", "mark deploy",
}

var walkKeys = slices.Concat(
	strings.Split("jjjjjkkknoptyxmqgghlv0123456789:/?[]+-", ""),
	strings.Split("ARCENDPLSTUXVZMOGHK", ""),
	[]string{
		"enter", "enter", "enter", "esc", "esc", "esc", "tab", "shift+tab", "up", "down", "left", "right", "pgdown", "pgup", "home", "end", "space", "space",
		"backspace", "ctrl+a", "ctrl+d", "ctrl+u", "ctrl+f", "ctrl+b", "ctrl+z", "ctrl+c", "f", "s", "w", "r", "a",
	})

func (w *walker) top() overlay {
	if n := len(w.m.over); n > 0 {
		return w.m.over[n-1]
	}
	return nil
}

// confirms reports whether a key confirms an action: enter on the second button of a
// preview whose confirmations are all typed.
func (w *walker) confirms(key tea.Msg) bool {
	d, ok := w.top().(*dialog)
	if !ok || pressed(key) != "enter" || d.stage != stagePreview || d.plan.Refused != "" || d.plan.Count == 0 || d.focus != len(d.typed)+1 {
		return false
	}
	for _, f := range d.typed {
		if strings.ReplaceAll(f.value(), ",", "") != f.arg.Name {
			return false
		}
	}
	return true
}

// disturb makes one random change: rows appear or vanish, the connection or
// the database fails or recovers.
func (w *walker) disturb() {
	w.store.set(func(s *fakeStore) {
		switch w.rnd.IntN(9) {
		case 0:
			s.link = queue.Link{State: queue.Choose(s.link.State == "lost", "live", "lost"), Attempt: 2, RetryIn: 3, Reason: queue.Clean("connection refused")}
			w.linkAt = time.Now()
		case 1:
			s.link = queue.Link{State: queue.Choose(s.link.State == "live", "polling", "live")}
			w.linkAt = time.Now()
		case 2:
			s.err = queue.Choose[error](s.err == nil, context.DeadlineExceeded, nil)
		case 3:
			s.fill()
			s.deadLetters, s.jobs = viewstest.DeadLetters(w.rnd.IntN(120)), viewstest.Jobs(w.rnd.IntN(120))
		case 4: // rows vanish
			p := s.snap
			p.Alerts, p.Executors, p.Health = half(w, p.Alerts), half(w, p.Executors), half(w, p.Health)
			p.Queues, p.JobLeases, p.Flags, p.Waiting = half(w, p.Queues), half(w, p.JobLeases), half(w, p.Flags), half(w, p.Waiting)
			s.snap, s.deadLetters, s.jobs, s.audit, s.subscriptions = p, half(w, s.deadLetters), half(w, s.jobs), half(w, s.audit), half(w, s.subscriptions)
			s.operations, s.endpoints, s.leases, s.sessions = half(w, s.operations), half(w, s.endpoints), half(w, s.leases), half(w, s.sessions)
			s.quarantine, s.history = half(w, s.quarantine), half(w, s.history)
			s.notify.Groups, s.notify.Failures, s.notify.Log = half(w, s.notify.Groups), half(w, s.notify.Failures), half(w, s.notify.Log)
		case 5:
			s.snap.TakenAt = s.snap.TakenAt.Add(time.Duration(w.rnd.IntN(300)) * time.Second)
		case 6:
			s.delay = queue.Choose(s.delay == 0, time.Duration(w.rnd.IntN(4))*time.Second, 0)
		case 7:
			s.refuse = queue.Choose(s.refuse == "", "another operator was faster", "")
		case 8:
			s.err, s.delay, s.link = nil, 0, queue.Link{State: "live"}
			w.linkAt = time.Now()
		}
	})
}

// half returns about half of the rows, chosen at random.
func half[T any](w *walker, rows []T) (out []T) {
	for _, x := range rows {
		if w.rnd.IntN(2) == 0 {
			out = append(out, x)
		}
	}
	return out
}

// did returns what the console changed so far: actions on the database, and on
// single loops of this process. A shutdown, of all loops, is not among these, nor
// is the mark that the console sets for an action on a loop.
func (w *walker) did() (did []string) {
	marks, loops := 0, 0
	for _, p := range w.store.did() {
		if p.Request.Action == queue.ActMark && strings.Contains(p.Request.Args["label"], " loop ") {
			marks++
			continue
		}
		did = append(did, fmt.Sprintf("%+v", p.Request))
	}
	for _, call := range w.host.said() {
		if _, loop, _ := strings.Cut(call, " "); loop != "" {
			did = append(did, call)
			loops++
		}
	}
	if marks > loops {
		w.fail("%d marks of %d actions on loops", marks, loops)
	}
	return did
}

// check fails the test if something does not hold that must always hold.
// confirmed says that the last key confirmed an action.
func (w *walker) check(confirmed bool) {
	w.t.Helper()
	m := w.m
	if did := w.did(); len(did) > w.applied {
		if !confirmed || len(did) > w.applied+1 {
			w.fail("an action was carried out without a confirmed dialog, one of %v", did)
		}
		w.applied = len(did)
	}
	if n := m.notice; n.text != "" && (time.Since(n.until) > heartbeatEvery || n.holds != nil && !n.holds()) {
		w.fail("the message %q is no longer true", n.text)
	}
	w.checkCursor()
	w.checkFrame()
}

// checkCursor fails the test if the cursor is on a row that does not exist.
func (w *walker) checkCursor() {
	w.t.Helper()
	l := w.m.pane().top()
	switch {
	case l.board != nil:
		if rows := w.m.rowsOfBoard(l); len(rows) > 0 && !slices.Contains(rows, l.cursor) {
			w.fail("the cursor of the Overview is on no row: %+v", l.cursor)
		}
	case l.page != nil:
		_, fits := views.Split(w.m.size.W, w.m.size.H, len(w.m.banners()))
		if n := len(l.built.Lines); fits && (l.offset < 0 || l.offset > 0 && l.offset >= n) {
			w.fail("the page shows line %d of %d", l.offset, n)
		}
	default:
		g := l.grid.view()
		if n := len(g.Order); n > 0 && (g.Cursor < 0 || g.Cursor >= n) {
			w.fail("the cursor is on row %d of %d", g.Cursor, n)
		}
		if i, ok := l.grid.current(); ok && l.grid.src.ID(i) != l.grid.at {
			w.fail("the cursor shows %q and acts on %q", l.grid.src.ID(i), l.grid.at)
		}
	}
}

// checkFrame fails the test if the frame does not fill the screen exactly, or
// if the header shows another state of the connection than the real one.
func (w *walker) checkFrame() {
	w.t.Helper()
	m := w.m
	lines := strings.Split(m.frame(), "\n")
	if len(lines) > m.size.H {
		w.fail("the frame has %d lines in %d", len(lines), m.size.H)
	}
	for i, line := range lines {
		if n := ansi.StringWidth(line); n > m.size.W {
			w.fail("line %d has %d cells in %d", i, n, m.size.W)
		}
	}
	_, fits := views.Split(m.size.W, m.size.H, len(m.banners()))
	if fits && len(lines) != m.size.H {
		w.fail("the frame has %d lines in %d: header, body and footer do not fit", len(lines), m.size.H)
	}
	if fits && len(m.over) == 0 && !m.line.open() && !m.chord {
		footer := ansi.Strip(lines[len(lines)-1])
		requireFooter(w.t, footer, m.at == home() && len(m.pane().levels) == 1, fmt.Sprintf("%q\nseed %d, after the keys … %s", footer, w.seed, strings.Join(w.keys, " ")))
	}
	if !fits || time.Since(w.linkAt) < 2*heartbeatEvery || len(m.over) > 0 {
		return
	}
	head := ansi.Strip(lines[0])
	lost := strings.Contains(head, "LOST") || strings.Contains(head, "NO DATABASE")
	state := w.store.Link().State
	if lost != (state == "lost") {
		w.fail("the link is %s and the header says %q", state, head)
	}
	calm := strings.Contains(head, " live") || strings.Contains(head, " polling")
	if calm && (m.feed.paused || m.feed.past.live != nil || !strings.Contains(head, " "+state)) {
		w.fail("the link is %s, paused %t, and the header says %q", state, m.feed.paused, head)
	}
}

// randomWalk presses n random keys in every pane, while busy data changes.
// To repeat a failed walk, set QTOP_WALK_SEED to the seed that it printed.
func randomWalk(t *testing.T, n int) (seen map[queue.PaneID]bool, confirmed int) {
	seed := uint64(walkSeed)
	if s := os.Getenv("QTOP_WALK_SEED"); s != "" {
		var err error
		seed, err = strconv.ParseUint(s, 10, 64)
		require.NoError(t, err)
	}
	seen = map[queue.PaneID]bool{}
	synctest.Test(t, func(t *testing.T) {
		w := newWalker(t, seed)
		defer w.close()
		for i := range n {
			before := w.applied
			if i%40 == 0 { // walk through every pane
				panes := Panes()
				w.m.over, w.m.line, w.m.chord = nil, prompt{}, false
				w.exec(w.m.open(panes[i/40%len(panes)].ID))
				w.settle()
			}
			w.step()
			seen[w.m.at] = true
			if w.applied > before {
				confirmed++
			}
		}
	})
	return seen, confirmed
}

// randomResizes changes the size of the terminal n times while panes, pages and
// dialogs are open.
func randomResizes(t *testing.T, n int) {
	synctest.Test(t, func(t *testing.T) {
		w := newWalker(t, walkSeed)
		defer w.close()
		keys := []string{"tab", "enter", "G", "?", "esc", "esc", "0", "A", "R", "esc", "j", "/", "h", "esc", ":", "f", "esc", "shift+tab"}
		for i := range n {
			s := tea.WindowSizeMsg{Width: 1 + w.rnd.IntN(250), Height: 1 + w.rnd.IntN(80)}
			k := keys[i%len(keys)]
			w.keys = append(w.keys, k, fmt.Sprintf("size:%dx%d", s.Width, s.Height))
			w.press(keyOf(k))
			w.press(s)
			w.check(false)
		}
	})
}
