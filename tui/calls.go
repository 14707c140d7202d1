package tui

import (
	"context"
	"errors"
	"io"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/qtop/qtop/pgclient/queue"
)

// How long each kind of call may take. A snapshot that takes longer would be
// too old to be useful; a list may scan a table; a plan for the names on a form
// may not hold up the plan that follows; an action and its plan may use the
// whole time of an action, so the console waits longer than that, and without a
// limit for an action that has none.
const (
	snapshotDeadline = 5 * time.Second
	listDeadline     = 10 * time.Second
	lookDeadline     = 3 * time.Second
	actionDeadline   = queue.ActionTimeout + 5*time.Second
	heartbeatEvery   = time.Second
)

// calls makes every call to Store and Host; nothing else in the console waits.
// Each method returns a Bubble Tea command with a deadline. A command does not
// touch the model: it returns a message, which Update handles.
type calls struct {
	o       Options
	store   Store
	actions queue.Registry
	host    Host
	ctx     context.Context //nolint:containedctx // Bubble Tea calls Update without a context
	cancel  context.CancelFunc
}

func heartbeat() tea.Cmd {
	return tea.Tick(heartbeatEvery, func(time.Time) tea.Msg { return heartbeatMsg{} })
}

// later returns a command that sends msg after d.
func later(d time.Duration, msg tea.Msg) tea.Cmd {
	return tea.Tick(d, func(time.Time) tea.Msg { return msg })
}

// within returns a command that calls ask with a context that ends with ctx, or after d.
func (m *calls) within(ctx context.Context, d time.Duration, ask func(context.Context, Store) tea.Msg) tea.Cmd {
	s := m.store
	return func() tea.Msg {
		ctx, cancel := context.WithTimeout(ctx, d)
		defer cancel()
		return ask(ctx, s)
	}
}

func (m *calls) readSnapshot(maxAge time.Duration) tea.Cmd {
	now := m.o.Now
	return m.within(m.ctx, snapshotDeadline, func(ctx context.Context, s Store) tea.Msg {
		start := now()
		p, err := s.Snapshot(ctx, maxAge)
		return snapshotMsg{p, err, now().Sub(start)}
	})
}

func (m *calls) readPast(trip int, at time.Time, steps int) tea.Cmd {
	return m.within(m.ctx, listDeadline, func(ctx context.Context, s Store) tea.Msg {
		p, first, err := s.SnapshotAt(ctx, at, steps)
		return pastMsg{trip, steps, p, first, err}
	})
}

func (m *calls) readSession() tea.Cmd {
	return m.within(m.ctx, snapshotDeadline, func(ctx context.Context, s Store) tea.Msg {
		p, err := s.List(ctx, queue.Query{Kind: queue.ListSession})
		return sessionMsg{queue.Of[*queue.Session](p), err}
	})
}

func (m *calls) readList(ctx context.Context, read int, q queue.Query, more bool) tea.Cmd {
	s := m.store
	return func() tea.Msg {
		p, err := s.List(ctx, q)
		return pageMsg{read, more, p, err}
	}
}

// forAction returns a command that calls ask in the time that the action a may take.
func (m *calls) forAction(ctx context.Context, a queue.ActionID, ask func(context.Context, Store) tea.Msg) tea.Cmd {
	if !m.actions.ByID(a).Long {
		return m.within(ctx, actionDeadline, ask)
	}
	s := m.store
	return func() tea.Msg { return ask(ctx, s) }
}

// plan makes a plan for a dialog. The end of ctx ends it.
func (m *calls) plan(ctx context.Context, dialog int, r queue.Request) tea.Cmd {
	return m.forAction(ctx, r.Action, func(ctx context.Context, s Store) tea.Msg {
		p, err := s.Plan(ctx, r)
		return plannedMsg{dialog, p, err}
	})
}

// lookUp makes a plan for the names of its targets.
func (m *calls) lookUp(dialog int, r queue.Request) tea.Cmd {
	ctx, s := m.ctx, m.store
	return func() tea.Msg {
		ctx, cancel := context.WithCancel(ctx) // a deadline would say that the database does not answer
		defer cancel()
		defer time.AfterFunc(lookDeadline, cancel).Stop()
		p, err := s.Plan(ctx, r)
		return lookedMsg{dialog, p, err}
	}
}

func (m *calls) apply(dialog int, p queue.Plan) tea.Cmd {
	return m.forAction(m.ctx, p.Request.Action, func(ctx context.Context, s Store) tea.Msg {
		r, err := s.Apply(ctx, p)
		return appliedMsg{dialog: dialog, result: r, err: err}
	})
}

// hosted has, for each action on the loops of this process, the method of Host
// that does it.
var hosted = map[queue.ActionID]func(Host, string) error{
	queue.ActHostStart: Host.Start, queue.ActHostDrain: Host.Drain, queue.ActHostStop: Host.Stop,
}

// applyHere carries out an action on the loops of this process; its answer asks for a mark with this label
// if it was done.
func (m *calls) applyHere(dialog int, p queue.Plan, label string) tea.Cmd {
	h := m.host
	return func() tea.Msg {
		r := queue.Result{Action: p.Request.Action, Plan: p.Lines}
		for _, loop := range p.Request.Targets {
			if err := hosted[p.Request.Action](h, loop); err != nil {
				return appliedMsg{dialog: dialog, result: r, err: err}
			}
			r.Done++
			r.Results = append(r.Results, queue.Outcome{ID: loop, Outcome: "done"})
		}
		return appliedMsg{dialog: dialog, result: r, mark: label, actor: p.Request.Actor}
	}
}

// pageDeadlines is a Store that gives each page of an export its own deadline:
// an export of many pages may take longer than one list.
type pageDeadlines struct{ Store }

func (p pageDeadlines) List(ctx context.Context, q queue.Query) (queue.Page, error) {
	ctx, cancel := context.WithTimeout(ctx, listDeadline)
	defer cancel()
	return p.Store.List(ctx, q)
}

// save writes the export x to the file name and reports the end with savedMsg.
func (m *calls) save(e *exporting, x queue.Export, name string) tea.Cmd {
	s, save := m.store, m.o.Save
	return func() tea.Msg {
		defer close(e.done)
		msg := savedMsg{of: e}
		msg.path, msg.err = save(name, func(w io.Writer) (err error) {
			msg.done, err = x.Run(e.ctx, pageDeadlines{s}, w, e.rows.Store)
			return err
		})
		msg.cancelled = e.ctx.Err() != nil
		return msg
	}
}

// poll reads the state of the database connection and of this process's host.
// Both answer from memory, but take a mutex that another goroutine may hold: a
// command waits for it, so that no key has to.
func (m *calls) poll() tea.Cmd {
	s, h := m.store, m.host
	return func() tea.Msg {
		p := polledMsg{link: s.Link()}
		if h != nil {
			st := h.Status()
			p.host = &st
		}
		return p
	}
}

// listen waits for the next change hint, a signal of Store.Changes that
// something in the database changed.
func (m *calls) listen() tea.Cmd {
	ctx, ch := m.ctx, m.store.Changes()
	if ch == nil {
		return nil
	}
	return func() tea.Msg {
		select {
		case _, open := <-ch:
			return hintMsg{open}
		case <-ctx.Done():
			return hintMsg{false}
		}
	}
}

// drainAll drains all loops of this process.
func (m *calls) drainAll() tea.Cmd {
	h := m.host
	// While the console quits, its own context ends; the drain must go on.
	ctx := context.WithoutCancel(m.ctx)
	return func() tea.Msg { return drainedMsg{h.Shutdown(ctx)} }
}

// handBack stops all loops at once and returns the claimed jobs and deliveries
// to the queue.
func (m *calls) handBack() tea.Cmd {
	h := m.host
	return func() tea.Msg { return drainedMsg{h.Stop("")} }
}

// why returns an error as one line for the operator; "" for nil.
func why(err error) string {
	if err == nil {
		return ""
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return "the database did not answer in time"
	}
	return queue.Said(err).String()
}

// exit ends the program.
func (m *calls) exit() tea.Cmd {
	m.cancel()
	return tea.Quit
}
