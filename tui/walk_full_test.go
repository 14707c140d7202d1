package tui

import (
	"context"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient"
	"github.com/qtop/qtop/pgclient/actions"
	"github.com/qtop/qtop/pgclient/pgtest"
	"github.com/qtop/qtop/pgclient/queue"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// appliedStore is the Store of the real console; it counts the actions that
// were to be applied.
type appliedStore struct {
	*pgclient.Client
	*actions.Planner
	applied atomic.Int64
}

func (s *appliedStore) Apply(ctx context.Context, p queue.Plan) (queue.Result, error) {
	s.applied.Add(1)
	return s.Planner.Apply(ctx, p)
}

// handle lets the real time d pass and handles the messages that arrive
// meanwhile.
func (w *walker) handle(d time.Duration) {
	for end := time.After(d); ; {
		select {
		case msg := <-w.run.msgs:
			w.deliver(msg)
		case <-end:
			return
		}
	}
}

// TestWalkOverABusyDatabase is a short random walk over a real database, in
// real time, while another operator closes dead letters and new ones arrive.
// Answers come when they come, so it checks less than TestRandomWalk: no action
// without a confirmed dialog, the cursor, and the frame.
func TestWalkOverABusyDatabase(t *testing.T) {
	if os.Getenv("QTOP_TEST_FULL") == "" {
		t.Skip("full: a minute; TestRandomWalk, over a store in memory, is its small form")
	}
	const lasts = time.Minute
	ctx, stop := context.WithCancel(t.Context())
	db := pgtest.New(t)
	pool := db.Pool(t, "")
	pgtest.FillDead(t, pool, 40, 5)
	login := db.DSN(pgtest.Login(t, db, "dead_letter_operator", "workflow_admin", "queue_viewer"))
	open := func(actor string) *appliedStore {
		client, err := pgclient.Open(ctx, pgclient.Options{DSN: login, Actor: actor, Actions: actions.Registry()})
		require.NoError(t, err)
		t.Cleanup(client.Close)
		return &appliedStore{Client: client, Planner: actions.New(client)}
	}
	s, ben := open("anna"), open("ben")
	var others sync.WaitGroup
	defer others.Wait()
	defer stop()
	others.Go(func() { _ = s.Listen(ctx) })
	others.Go(func() { traffic(ctx, t, pool, ben) })

	w := &walker{t: t, rnd: rand.New(rand.NewPCG(walkSeed, 1)), seed: walkSeed}
	start := func() {
		w.run = &walkerRun{msgs: make(chan tea.Msg, 10_000), done: make(chan struct{})}
		w.m = newRoot(ctx, s, nil, Options{Actor: "anna", UTC: true, Save: (&folder{files: map[string]string{}}).save})
		w.send(tea.WindowSizeMsg{Width: 80, Height: 24})
		w.exec(w.m.Init())
	}
	end := func() {
		w.m.cancel()
		close(w.run.done)
	}
	start()
	confirmed, keys := int64(0), 0
	for begun := time.Now(); time.Since(begun) < lasts; keys++ {
		d, inDialog := w.top().(*dialog)
		key, name := w.pick()
		switch {
		case inDialog:
			key, name = w.pickInDialog(d)
		case keys%20 == 0: // so that some dialogs are confirmed
			w.m.over, w.m.line, w.m.chord = nil, prompt{}, false
			w.exec(w.m.open(queue.PaneDead))
			key, name = keyOf("R"), "5 R"
		}
		w.note(name)
		if w.confirms(key) {
			confirmed++
		}
		w.send(key)
		w.handle(queue.Choose(inDialog, quietFor+50*time.Millisecond, 50*time.Millisecond))
		if n := s.applied.Load(); n > confirmed {
			w.fail("%d actions were carried out, and %d dialogs confirmed", n, confirmed)
		}
		w.checkCursor()
		w.linkAt = time.Now() // what the header says about the connection is not compared here
		w.checkFrame()
		if w.run.quit {
			end()
			start()
		}
	}
	end()
	t.Logf("%d keys, %d dialogs confirmed, %d actions of the other operator", keys, confirmed, ben.applied.Load())
	require.Positive(t, ben.applied.Load(), "actions of the other operator")
	require.Positive(t, s.applied.Load(), "actions of the walk")
}

// traffic sends events and dead letters until ctx ends, and lets the other
// operator close dead letters, so that rows come and vanish.
func traffic(ctx context.Context, t *testing.T, pool *pgxpool.Pool, other *appliedStore) {
	tenth := time.NewTicker(100 * time.Millisecond)
	defer tenth.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tenth.C:
		}
		for _, sql := range []string{
			`INSERT INTO public.events (event_type, payload) SELECT 'order', jsonb_build_object('n', i) FROM generate_series(1, 20) i`,
			`INSERT INTO public.job_dead_letter (job_id, job_kind, event_domain, failure_code, executor, payload, attempts, first_failed_at, last_failed_at)
			SELECT gen_random_uuid(), 'kind_' || i, 'dom_1', 'CODE_' || i % 3, 'external_worker', '{}', 3, now(), now() FROM generate_series(1, 5) i`,
		} {
			if _, err := pool.Exec(ctx, sql); err != nil && ctx.Err() == nil {
				t.Error("traffic:", err)
				return
			}
		}
		page, err := other.List(ctx, queue.Query{Kind: queue.ListDeadLetters, Limit: 4})
		var ids []string
		for _, d := range queue.Of[[]queue.DeadLetter](page) {
			ids = append(ids, d.ID)
		}
		if err != nil || len(ids) == 0 {
			continue
		}
		if plan, err := other.Plan(ctx, queue.Request{Action: queue.ActResolve, Targets: ids, Reason: "test"}); err == nil {
			_, _ = other.Apply(ctx, plan) // the walk may have been faster with one of these
		}
	}
}
