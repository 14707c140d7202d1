package tui

// This file is the only place that waits: every call of store and host, each
// with its deadline. Commands touch nothing of the model; they answer.

import (
	"context"
	"errors"
	"io"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/qtop/qtop/pgclient/queue"
)

// The deadlines. A picture that takes longer is no picture; a list or a plan may
// scan; an applied action is left the time of its statement_timeout.
const (
	pictureDeadline = 5 * time.Second
	listDeadline    = 10 * time.Second
	planDeadline    = 15 * time.Second
	applyDeadline   = 30 * time.Second
	beatEvery       = time.Second
)

// calls is what the console asks of store and host.
type calls struct {
	o       Options
	store   Store
	actions queue.Registry
	host    Host
	ctx     context.Context //nolint:containedctx // the framework calls Update without one
	cancel  context.CancelFunc
}

func beat() tea.Cmd { return tea.Tick(beatEvery, func(time.Time) tea.Msg { return beatMsg{} }) }

func later(d time.Duration, msg tea.Msg) tea.Cmd {
	return tea.Tick(d, func(time.Time) tea.Msg { return msg })
}

// within asks the store with a deadline.
func (m *calls) within(d time.Duration, ask func(context.Context, Store) tea.Msg) tea.Cmd {
	ctx, s := m.ctx, m.store
	return func() tea.Msg {
		ctx, cancel := context.WithTimeout(ctx, d)
		defer cancel()
		return ask(ctx, s)
	}
}

func (m *calls) readPicture() tea.Cmd {
	now := m.o.Now
	return m.within(pictureDeadline, func(ctx context.Context, s Store) tea.Msg {
		start := now()
		p, err := s.Snapshot(ctx)
		return pictureMsg{p, err, now().Sub(start)}
	})
}

func (m *calls) readPast(trip int, at time.Time, steps int) tea.Cmd {
	return m.within(listDeadline, func(ctx context.Context, s Store) tea.Msg {
		p, first, err := s.SnapshotAt(ctx, at, steps)
		return pastMsg{trip, steps, p, first, err}
	})
}

func (m *calls) readSession() tea.Cmd {
	return m.within(listDeadline, func(ctx context.Context, s Store) tea.Msg {
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

func (m *calls) plan(dialog int, r queue.Request) tea.Cmd {
	return m.within(planDeadline, func(ctx context.Context, s Store) tea.Msg {
		p, err := s.Plan(ctx, r)
		return plannedMsg{dialog, p, err}
	})
}

func (m *calls) apply(dialog int, p queue.Plan) tea.Cmd {
	return m.within(applyDeadline, func(ctx context.Context, s Store) tea.Msg {
		r, err := s.Apply(ctx, p)
		return appliedMsg{dialog, r, err}
	})
}

// hosted is what the actions of this process do.
var hosted = map[queue.ActionID]func(Host, string) error{
	queue.ActHostStart: Host.Start, queue.ActHostDrain: Host.Drain, queue.ActHostStop: Host.Stop,
}

// applyHere carries out an action of this process.
func (m *calls) applyHere(dialog int, p queue.Plan) tea.Cmd {
	h := m.host
	return func() tea.Msg {
		r := queue.Result{Action: p.Request.Action, Plan: p.Lines}
		for _, loop := range p.Request.Targets {
			if err := hosted[p.Request.Action](h, loop); err != nil {
				return appliedMsg{dialog, r, err}
			}
			r.Done++
			r.Results = append(r.Results, queue.Outcome{ID: loop, Outcome: "done"})
		}
		return appliedMsg{dialog, r, nil}
	}
}

// patient gives each page of an export its own deadline.
type patient struct{ Store }

func (p patient) List(ctx context.Context, q queue.Query) (queue.Page, error) {
	ctx, cancel := context.WithTimeout(ctx, listDeadline)
	defer cancel()
	return p.Store.List(ctx, q)
}

// save writes an export to a file.
func (m *calls) save(e *exporting, x queue.Export, name string) tea.Cmd {
	s, save := m.store, m.o.Save
	return func() tea.Msg {
		defer close(e.done)
		msg := savedMsg{of: e}
		msg.path, msg.err = save(name, func(w io.Writer) (err error) {
			msg.done, err = x.Run(e.ctx, patient{s}, w, e.rows.Store)
			return err
		})
		msg.cancelled = e.ctx.Err() != nil
		return msg
	}
}

// poll asks memory, still in a command: a lock held elsewhere must not stop a
// key.
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

// listen waits for one hint.
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

func (m *calls) drainAll() tea.Cmd {
	h := m.host
	// The drain outlives the console's own context: it is what a quit waits for.
	ctx := context.WithoutCancel(m.ctx)
	return func() tea.Msg { return drainedMsg{h.Shutdown(ctx)} }
}

func (m *calls) handBack() tea.Cmd {
	h := m.host
	return func() tea.Msg { return drainedMsg{h.Stop("")} }
}

// why is an error in one line for the operator.
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
