package main

// The command without a verb: the console, and in the same process a worker host that runs no loop
// until the operator starts one.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/charmbracelet/x/term"

	"github.com/qtop/qtop/pgclient"
	"github.com/qtop/qtop/pgclient/actions"
	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/tui"
)

func (a *app) console(ctx context.Context) error {
	if err := a.checkStart(); err != nil {
		return err
	}
	client, err := a.client(ctx, hostConns)
	if err != nil {
		return err
	}
	defer client.Close()
	log, closeLog := a.logFile()
	defer closeLog()
	var host localHost
	if host, err = a.host(client, []string{}, log, nil, nil); err != nil {
		// A machine for operators has neither the programs nor the secrets of
		// the workers.
		log.Warn("no worker host can run in the console", "reason", err.Error())
		first, _, _ := strings.Cut(err.Error(), "\n")
		host = noHost(queue.Clean(first).String())
	}
	return a.show(ctx, client, host, log, demoConsole{})
}

// localHost is the worker host of this process.
type localHost interface {
	tui.Host
	Run(ctx context.Context) error
}

// noHost takes the place of the host in a process that cannot run one. Its
// text is the reason, which every start of a loop returns.
type noHost string

func (n noHost) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}
func (n noHost) Status() queue.HostStatus { return queue.HostStatus{Refused: string(n)} }
func (n noHost) Start(string) error       { return errors.New(string(n)) }
func (n noHost) Drain(string) error       { return nil }
func (n noHost) Stop(string) error        { return nil }

// Shutdown returns at once, because no loop runs.
func (n noHost) Shutdown(context.Context) error { return nil }

// store is the tui.Store of the console: the client reads, the planner acts.
type store struct {
	*pgclient.Client
	*actions.Planner
}

// soon is how long qtop waits for an answer of the database before it reports
// that the terminal cannot show a console: if the database cannot serve a
// console either, that is the better message.
const soon = 2 * time.Second

// demoConsole is what the console of the demo shows besides: a status line, and the DSN of its login.
type demoConsole struct{ line, dsn string }

// show runs the console over a client and, beside it, a host (nil: no host).
// Both have separate contexts and connections, so that neither can stop the
// other. The first frame does not wait for the database. If the database can
// never serve a console, the screen ends when that is known.
func (a *app) show(ctx context.Context, client *pgclient.Client, host localHost, log *slog.Logger, demo demoConsole) error {
	if err := a.canShow(); err != nil {
		ctx, cancel := context.WithTimeout(ctx, soon)
		defer cancel()
		// If the database cannot serve a console, that is reported, because
		// another terminal would not help.
		return cmp.Or(client.Serves(ctx), err)
	}
	pane, err := paneOf(a.pane)
	if err != nil {
		return err
	}
	s := a.settings
	o := tui.Options{
		Profile: s.Profile, ReadOnly: s.ReadOnly, Actor: s.Actor, ASCII: s.ASCII, Theme: s.Theme, Refresh: s.Refresh,
		NoColor: os.Getenv("NO_COLOR") != "", Accessible: a.access, StartPane: pane, StartFilter: a.filter,
		Version: version(), Demo: demo.line, DemoDSN: demo.dsn, Mouse: s.Mouse, OwnLogin: demo != demoConsole{}, AnswerActor: client.WithActor,
		Save: func(name string, write func(io.Writer) error) (string, error) {
			return a.newFile(fromHome(name), false, write)
		},
	}
	if s.Production {
		o.Production = cmp.Or(s.Profile, "production")
	}
	if !s.Clipboard {
		o.Clipboard = "off"
	}
	slog.SetDefault(log) // what libraries log must not appear on the screen
	hostCtx, stopHost := context.WithCancelCause(context.WithoutCancel(ctx))
	listenCtx, stopListening := context.WithCancel(context.WithoutCancel(ctx))
	screen, endScreen := context.WithCancel(ctx)
	var wg sync.WaitGroup
	var hostErr, refused error
	if host != nil {
		wg.Go(func() { hostErr = host.Run(hostCtx) })
	}
	wg.Go(func() {
		if refused = client.Serves(screen); refused != nil {
			endScreen()
			return
		}
		// The second connection is made after the first, which has something to show.
		_ = client.Listen(listenCtx) // an error for a wrong DSN was reported earlier
	})
	// A terminal, or a pipe of --accessible, that takes no output keeps tui.Run from returning.
	defer context.AfterFunc(ctx, func() { stopHost(context.Cause(ctx)) })()
	defer a.endBy(ctx, s.Grace)()
	unshown, err := tui.Run(screen, store{client, actions.New(client).Probing(a.probe)}, host, o)
	if unshown != "" {
		a.printError(queue.Error{What: queue.Clean("the console ended before the result of an action was shown: " + unshown + "; see qtop audit")})
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	defer a.endBy(ended, s.Grace)()
	endScreen()
	stopListening()
	stopHost(cmp.Or(context.Cause(ctx), errors.New(strings.TrimSpace("quit by "+s.Actor))))
	wg.Wait()
	return cmp.Or(refused, err, hostErr)
}

// checkStart refuses the flags --pane and --filter where they would have no effect.
func (a *app) checkStart() error {
	switch {
	case a.access && a.pane != "":
		return usage("--accessible prints the Overview, no other pane", "--pane", "leave it out, or use the verb of the pane; see qtop --help")
	case a.access && a.filter != "":
		return usage("--accessible prints the Overview, which has no filter", "--filter", "leave it out, or use a verb such as qtop dlq --filter F")
	case a.filter != "" && (a.pane == "" || queue.PaneID(a.pane) == queue.PaneOverview):
		return usage("the Overview has no filter", "--filter", "name another pane with --pane, such as --pane dlq")
	}
	return nil
}

// canShow refuses a terminal that cannot show a screen. The error contains the
// remedy.
func (a *app) canShow() error {
	if a.access {
		return nil
	}
	if !terminal(a.out) || !terminal(a.in) {
		return usage("this is not a terminal", "standard input or output", "use a verb such as qtop status, or --accessible")
	}
	if t := os.Getenv("TERM"); t == "dumb" || t == "" {
		return usage(fmt.Sprintf("the terminal says TERM=%q: it cannot show a screen", t), "env TERM",
			"use --accessible for plain lines, a verb such as qtop status --watch, or set TERM (xterm-256color)")
	}
	if t := os.Getenv("TERM"); !knownTerminal(t) {
		return usage(fmt.Sprintf("this machine has no description of the terminal TERM=%q", t), "env TERM",
			"set TERM to what it is (xterm-256color, say), or use --accessible for plain lines")
	}
	for until := time.Now().Add(sizeWithin); ; time.Sleep(sizeWithin / 50) { // between two looks
		w, h, err := term.GetSize(os.Stdout.Fd())
		if err != nil || w > 0 && h > 0 {
			return nil
		}
		if time.Now().After(until) {
			return usage(fmt.Sprintf("the terminal reports a size of %d columns and %d lines", w, h), "standard output",
				"say how large it is (stty cols 80 rows 24), or use --accessible for plain lines")
		}
	}
}

// sizeWithin is how long a terminal may take to get its size. In a container it gets one a moment after
// the program starts (kubectl exec -it).
const sizeWithin = 2 * time.Second

func paneOf(name string) (queue.PaneID, error) {
	if name == "" {
		return "", nil
	}
	if name == "dlq" {
		return queue.PaneDead, nil
	}
	if !slices.Contains(paneNames(), name) {
		return "", usage(fmt.Sprintf("there is no pane %q", name), "--pane", "use one of "+strings.Join(paneNames(), ", "))
	}
	return queue.PaneID(name), nil
}

// paneNames returns the names that --pane accepts, in menu order.
func paneNames() []string {
	var names []string
	for _, p := range tui.Panes() {
		names = append(names, string(p.ID))
	}
	return names
}
