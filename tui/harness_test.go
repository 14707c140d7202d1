package tui

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/colorprofile"
	"github.com/charmbracelet/x/ansi"
	"github.com/charmbracelet/x/vt"
	"github.com/stretchr/testify/require"
)

// console is a running console that draws on a terminal emulator. It runs in a
// bubble of testing/synctest: time is virtual, so that hours pass in
// milliseconds.
type console struct {
	t     *testing.T
	p     *tea.Program
	m     *root // read it only through the method model
	emu   *vt.SafeEmulator
	out   *crlf
	store *fakeStore
	host  *fakeHost
	done  chan error
}

// crlf turns line feeds into CR LF, as the line discipline of a terminal does:
// without a tty the program sends bare line feeds.
type crlf struct {
	mu    sync.Mutex
	emu   *vt.SafeEmulator
	bytes int
	raw   strings.Builder
}

func (w *crlf) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.bytes += len(b)
	w.raw.Write(b)
	_, err := w.emu.Write([]byte(strings.ReplaceAll(string(b), "\n", "\r\n")))
	return len(b), err
}

func (w *crlf) written() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.bytes
}

func (w *crlf) all() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.raw.String()
}

type setup struct {
	w, h  int
	store *fakeStore
	host  *fakeHost // nil: this process cannot run a host
	o     Options
}

// run starts a console in a synctest bubble, calls test, and ends the console.
func run(t *testing.T, s setup, test func(c *console)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		if s.store == nil {
			s.store = newStore()
		}
		if s.w == 0 {
			s.w, s.h = 80, 24
		}
		c := &console{t: t, store: s.store, host: s.host, done: make(chan error, 1)}
		c.store.changes = make(chan struct{}, 1) // made in this bubble
		if s.o.Actor == "" {
			s.o.Actor = "anna"
		}
		s.o.UTC = true
		c.emu = vt.NewSafeEmulator(s.w, s.h)
		c.out = &crlf{emu: c.emu}
		var h Host
		if s.host != nil {
			h = s.host
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		c.m = newRoot(ctx, s.store, h, s.o)
		drained := make(chan struct{})
		go func() { // the emulator answers queries of the program; nobody needs the answers
			defer close(drained)
			buf := make([]byte, 1024)
			for {
				if _, err := c.emu.Read(buf); err != nil {
					return
				}
			}
		}()
		c.p = tea.NewProgram(probed{c.m}, tea.WithInput(nil), tea.WithOutput(c.out), tea.WithWindowSize(s.w, s.h), tea.WithoutSignalHandler(),
			tea.WithFPS(20), tea.WithColorProfile(colorprofile.ANSI256), tea.WithEnvironment([]string{"TERM=xterm-256color"}))
		go func() { _, err := c.p.Run(); c.done <- err }()
		defer func() {
			c.m.cancel()
			c.p.Kill()
			select {
			case <-c.done:
			case <-time.After(time.Minute):
				t.Error("the program does not end")
			}
			_ = c.emu.Close()
			<-drained
			time.Sleep(time.Minute) // virtual time, in which timers that were started end
		}()
		c.rest(200 * time.Millisecond)
		test(c)
	})
}

// rest lets virtual time pass, and waits until the console has handled what
// happened meanwhile.
func (c *console) rest(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// press presses keys one after another, each a tenth of a second after the last.
func (c *console) press(keys ...string) {
	for _, k := range keys {
		c.p.Send(keyOf(k))
		c.rest(100 * time.Millisecond)
	}
}

// typing sends words as key presses, all at one moment.
func (c *console) typing(words string) {
	for _, r := range words {
		c.p.Send(keyOf(string(r)))
	}
	c.rest(100 * time.Millisecond)
}

func keyOf(k string) tea.KeyPressMsg {
	special := map[string]rune{
		"enter": tea.KeyEnter, "esc": tea.KeyEscape, "tab": tea.KeyTab, "up": tea.KeyUp, "down": tea.KeyDown, "left": tea.KeyLeft,
		"right": tea.KeyRight, "pgdown": tea.KeyPgDown, "pgup": tea.KeyPgUp, "backspace": tea.KeyBackspace, "home": tea.KeyHome, "end": tea.KeyEnd,
	}
	if code, ok := special[k]; ok {
		return tea.KeyPressMsg{Code: code}
	}
	if k == "space" || k == " " {
		return tea.KeyPressMsg{Code: tea.KeySpace, Text: " "}
	}
	if k == "shift+tab" {
		return tea.KeyPressMsg{Code: tea.KeyTab, Mod: tea.ModShift}
	}
	if rest, ok := strings.CutPrefix(k, "ctrl+"); ok {
		return tea.KeyPressMsg{Code: rune(rest[0]), Mod: tea.ModCtrl}
	}
	return tea.KeyPressMsg{Code: []rune(strings.ToLower(k))[0], Text: k}
}

// screen returns the text on the screen, without styles.
func (c *console) screen() string {
	c.rest(60 * time.Millisecond)
	return ansi.Strip(c.emu.Render())
}

func (c *console) sees(words ...string) {
	c.t.Helper()
	s := c.screen()
	for _, w := range words {
		require.Contains(c.t, s, w)
	}
}

func (c *console) seesNot(words ...string) {
	c.t.Helper()
	s := c.screen()
	for _, w := range words {
		require.NotContains(c.t, s, w)
	}
}

// ended reports whether the console has quit.
func (c *console) ended() bool {
	c.rest(200 * time.Millisecond)
	select {
	case err := <-c.done:
		c.done <- err
		return true
	default:
		return false
	}
}

// probed wraps the model so that a test can read it: the read runs on the
// event loop of Bubble Tea, the only goroutine that may touch the model.
type probed struct{ *root }

type probeMsg struct {
	look func(*root)
	done chan struct{}
}

func (p probed) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	if msg, ok := msg.(probeMsg); ok {
		msg.look(p.root)
		close(msg.done)
		return p, nil
	}
	_, cmd := p.root.Update(msg)
	return p, cmd
}

func (c *console) model(look func(m *root)) {
	msg := probeMsg{look, make(chan struct{})}
	c.p.Send(msg)
	<-msg.done
}

// overlays returns how many overlays (menus, dialogs, help) are open over the pane.
func (c *console) overlays() (n int) {
	c.model(func(m *root) { n = len(m.over) })
	return n
}
