// Payloads, event dead letters and lineage through the client.

package pgclient_test

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient"
	"github.com/qtop/qtop/pgclient/enqueue"
	"github.com/qtop/qtop/pgclient/queue"
)

// dieEvents makes dead letters of events that could not be routed, one per type.
func (w *world) dieEvents(types ...string) (ids []string) {
	w.t.Helper()
	for _, kind := range types {
		w.exec("INSERT INTO public.event_type_registry VALUES ('iu', $1, 's', 'immediate') ON CONFLICT DO NOTHING", kind)
		event := get[string](w, `SELECT public.fn_iu_emit_event('iu', $1, 's', 'immediate', 'info', NULL, NULL, '{"n": 12345678901234567890.10, "api_key": "hidden"}') ->> 'event_id'`, kind)
		ids = append(ids, "event:"+get[string](w, `INSERT INTO public.iu_route_dead_letter (event_id, event_snapshot, idempotency_key, failure_code, last_error, event_domain, worker_name)
			SELECT e.id, to_jsonb(e), e.id, 'ROUTE_22P02', 'no route', 'iu', 'iu_outbound_default' FROM public.event_outbox e WHERE e.id = $1::text::uuid
			RETURNING dead_letter_id::text`, event))
	}
	return ids
}

func (w *world) detail(c *console, id string) *queue.DeadLetterDetail {
	w.t.Helper()
	p, err := c.List(context.Background(), queue.Query{Kind: queue.ListDeadLetter, ID: id})
	require.NoError(w.t, err)
	return queue.Of[*queue.DeadLetterDetail](p)
}

func TestRevealThroughPlanAndApply(t *testing.T) {
	w := newWorld(t)
	hook := w.die(deadLetter{"order", "https://hooks.acme.test/a", "HTTP_503", time.Minute})[0]
	event := w.dieEvents("made")[0]
	op := w.client("queue_viewer", "dead_letter_operator")
	for _, id := range []string{hook, event} {
		require.NotContains(t, w.detail(op, id).Payload.String(), "hidden")
		p := plan(t, op, queue.Request{Action: queue.ActReveal, Targets: []string{id}, Reason: "look at it"})
		require.Equal(t, "qtop dlq show "+id+" --reveal --reason 'look at it'", p.Command)
		require.NotContains(t, lines(p), "hidden")
		rows := get[int](w, "SELECT count(*) FROM public.queue_operator_action WHERE action = 'payload_reveal'")
		res := apply(t, op, p)
		require.Contains(t, res.Payload.String(), "hidden")
		require.Contains(t, res.Payload.String(), "12345678901234567890")
		require.Equal(t, "revealed", res.Results[0].Outcome)
		require.Equal(t, rows+1, get[int](w, "SELECT count(*) FROM public.queue_operator_action WHERE action = 'payload_reveal'"))
		require.Equal(t, "ann look at it", get[string](w, "SELECT actor || ' ' || reason FROM public.queue_operator_action WHERE id = $1", res.AuditID))
	}
	for _, id := range []string{"99999", "job:0190a1b2-1111-4222-8333-0123456789ab", "0190a1b2-1111-4222-8333-0123456789ab"} {
		p := plan(t, op, queue.Request{Action: queue.ActReveal, Targets: []string{id}, Reason: "x"})
		require.Equal(t, "not_found", p.Rule, id)
	}
	_, err := op.Plan(context.Background(), queue.Request{Action: queue.ActReveal, Targets: []string{hook}})
	kind(t, queue.KindUsage, err)
	_, err = op.Plan(context.Background(), queue.Request{Action: queue.ActReveal, Targets: []string{"x y"}, Reason: "r"})
	kind(t, queue.KindUsage, err)

	p := plan(t, op, queue.Request{Action: queue.ActReveal, Targets: []string{hook}, Reason: "r"})
	viewer := w.client("queue_viewer")
	_, err = viewer.Apply(context.Background(), p)
	kind(t, queue.KindPermission, err)
	readonly := open(t, pgclient.Options{DSN: w.db.DSN(""), Actor: "ann", ReadOnly: true})
	_, err = readonly.Apply(context.Background(), p)
	require.Error(t, err)
	session, err := viewer.Session(context.Background())
	require.NoError(t, err)
	require.False(t, session.Rights[queue.ActReveal])
}

// A large payload is cut to the limit, with its full size; a request for the whole payload gets all
// of it.
func TestPayloadIsBounded(t *testing.T) {
	w := newWorld(t)
	w.exec(`INSERT INTO public.event_type_registry VALUES ('iu', 'large', 's', 'immediate')`)
	id := w.dieEvents("large")[0]
	w.exec(`UPDATE public.iu_route_dead_letter SET event_snapshot = jsonb_build_object('event_type', 'large', 'rows',
		(SELECT jsonb_agg(jsonb_build_object('i', i, 'text', repeat('x', 80))) FROM generate_series(1, 20000) i))`)
	op := w.client("queue_viewer", "dead_letter_operator")
	started := time.Now()
	d := w.detail(op, id)
	t.Logf("a payload of %d characters: %s", d.PayloadSize, time.Since(started))
	require.Greater(t, d.PayloadSize, int64(2_000_000))
	require.Len(t, d.Payload.String(), queue.PayloadShown)
	p, err := op.List(context.Background(), queue.Query{Kind: queue.ListDeadLetter, ID: id, Whole: true})
	require.NoError(t, err)
	require.Len(t, queue.Of[*queue.DeadLetterDetail](p).Payload.String(), int(d.PayloadSize))

	// When it reveals a payload, a console reads no more than it shows; a verb reads the whole
	// payload.
	for whole, want := range map[bool]int{false: queue.PayloadShown + 1, true: int(d.PayloadSize)} {
		res := apply(t, op, plan(t, op, queue.Request{Action: queue.ActReveal, Targets: []string{id}, Reason: "r", Whole: whole}))
		require.Len(t, res.Payload.String(), want)
	}
}

func TestEventDeadLetters(t *testing.T) {
	w := newWorld(t)
	hook := w.die(deadLetter{"order", "https://hooks.acme.test/a", "HTTP_503", time.Minute})[0]
	job := w.dieJobs(jobDeadLetter{"kg.reindex", "kg", "TIMEOUT", 2 * time.Minute})[0]
	events := w.dieEvents("made", "made", "sent")
	op := w.client("queue_viewer", "dead_letter_operator")
	list := func(filter string, limit int) (ids []string) {
		t.Helper()
		q := queue.Query{Kind: queue.ListDeadLetters, Filter: filter, Limit: limit}
		for {
			p, err := op.List(context.Background(), q)
			require.NoError(t, err)
			for _, l := range queue.Of[[]queue.DeadLetter](p) {
				ids = append(ids, l.ID)
			}
			if q.After = p.Next; p.Next == "" {
				require.EqualValues(t, len(ids), p.Total)
				return ids
			}
		}
	}
	for limit := 1; limit <= 6; limit++ {
		all := list("", limit)
		require.Len(t, all, 5)
		require.Equal(t, []string{events[2], events[1], events[0], hook, job}, all, limit)
	}
	require.ElementsMatch(t, events, list("source:event", 2))
	require.ElementsMatch(t, events[:2], list("kind:event type:made code:ROUTE_*", 9))
	require.Equal(t, []string{events[2]}, list("domain:iu endpoint:sent", 9))

	s, err := op.Snapshot(context.Background(), 0)
	require.NoError(t, err)
	groups := map[string]queue.DeadGroup{}
	for _, g := range s.DeadGroups {
		groups[g.Source+" "+g.Endpoint.String()] = g
		sum := int64(0)
		for _, n := range g.Trend {
			sum += n
		}
		require.Len(t, g.Trend, 12)
		require.Equal(t, g.Open, sum, "%s: all of them died in this hour", g.Endpoint)
	}
	require.EqualValues(t, 2, groups["event made"].Open)
	require.EqualValues(t, 2, groups["event made"].Trend[11]+groups["event made"].Trend[10])
	require.EqualValues(t, 5, s.Flow.DeadOpen)

	w.exec("INSERT INTO public.iu_route_attempt SELECT event_id, 'user:ann', 1, 'iu', 'made', 'iu_outbound_default' FROM public.iu_route_dead_letter WHERE 'event:' || dead_letter_id = $1", events[0])
	d := w.detail(op, events[0])
	require.Equal(t, "event open ROUTE_22P02 made iu no route", strings.Join([]string{d.Source, d.State, d.Code.String(), d.EventType.String(), d.Domain.String(), d.LastError.String()}, " "))
	require.Contains(t, d.Payload.String(), "12345678901234567890.10")
	require.NotContains(t, d.Payload.String(), "hidden")
	require.Equal(t, "0 event, 0 attempt iu_outbound_default, 0 dead_letter iu_outbound_default *", chain(d))

	p := plan(t, op, queue.Request{Action: queue.ActRequeue, Targets: []string{hook, events[0]}, Reason: "x"})
	require.EqualValues(t, 2, p.Count)
	p = plan(t, op, queue.Request{Action: queue.ActBulkPlan, Targets: events, Reason: "x"})
	require.EqualValues(t, len(events), p.Count)

	p = plan(t, op, queue.Request{Action: queue.ActResolve, Filter: "source:event type:made", Reason: "known", Args: map[string]string{"resolution": "duplicate"}})
	require.EqualValues(t, 2, p.Count)
	require.EqualValues(t, 2, apply(t, op, p).Done)
	d = w.detail(op, events[0])
	require.Equal(t, "resolved duplicate ann known", strings.Join([]string{d.State, d.Resolution.String(), d.ResolvedBy.String(), d.ResolvedNote.String()}, " "))
	require.Contains(t, chain(d), ", 0 closed ann")
	require.Equal(t, int64(1), get[int64](w, "SELECT sum(n)::bigint FROM public.v_queue_counter WHERE scope = 'dead_event'"))
	again := plan(t, op, queue.Request{Action: queue.ActResolve, Targets: events[:1], Reason: "x"})
	require.Contains(t, again.Refused, "closed already as duplicate by ann")
	require.EqualValues(t, 1, apply(t, op, plan(t, op, queue.Request{Action: queue.ActReopen, Targets: events[:1], Reason: "not so"})).Done)
	require.Equal(t, "open", w.detail(op, events[0]).State)
	require.EqualValues(t, 2, get[int64](w, "SELECT count(*) FROM public.queue_operator_action WHERE action LIKE 'iu_route_dead_letter_%'"))
}

// The lineage of a dead letter that was requeued 120 times shows the 100 generations nearest to it,
// and says that there are more.
func TestLineageOfManyGenerations(t *testing.T) {
	w := newWorld(t)
	op := w.client("queue_viewer", "dead_letter_operator")
	first := w.die(deadLetter{"order", "https://hooks.acme.test/a", "HTTP_503", 0})[0]
	last := w.generations(first, 120)
	d := w.detail(op, first)
	require.Equal(t, 0, d.Generation)
	require.EqualValues(t, 20, d.LineageLeft)
	require.True(t, strings.HasPrefix(chain(d), "0 event, 0 saga, 0 job, 0 dead_letter *, 0 requeue ann, 1 saga, 1 job, 1 dead_letter, 1 requeue ann, 2 saga"), chain(d)[:200])
	d = w.detail(op, last)
	require.Equal(t, 120, d.Generation)
	require.EqualValues(t, 20, d.LineageLeft)
	require.True(t, strings.HasSuffix(chain(d), "119 requeue ann, 120 saga, 120 job, 120 dead_letter *"))
	require.Len(t, d.Lineage, 1+100*4+3)
}

// generations requeues a dead letter n times, lets each new saga die, and returns the last
// dead letter.
func (w *world) generations(id string, n int) string {
	w.t.Helper()
	for range n {
		w.exec("SELECT public.fn_dead_letter_requeue(ARRAY[$1::text::bigint], 'ann', 'again')", id)
		w.exec("SELECT public.fn_saga_orchestrator_run()")
		var job int64
		var token string
		require.NoError(w.t, w.root.QueryRow(context.Background(), "SELECT job_id, lease_token::text FROM public.fn_webhook_job_claim('test', 1)").Scan(&job, &token))
		w.exec("SELECT public.fn_webhook_job_report(jsonb_build_array(jsonb_build_object('job_id', $1::bigint, 'lease_token', $2::text, 'delivered', false, 'code', 'HTTP_503')))", job, token)
		w.exec("SELECT public.fn_saga_orchestrator_run()")
		id = get[string](w, "SELECT max(id)::text FROM public.dead_letters")
	}
	return id
}

// queue.CheckObject admits what PostgreSQL takes as jsonb, and refuses the rest, save \u0000.
func TestObjectsAreWhatTheServerTakes(t *testing.T) {
	w := newWorld(t)
	for _, text := range []string{
		`{}`, ` {"a": [1, -0.5e-3, "\u00e4", true, null]} `, `null`, `[]`, ``, `{"a": 01}`, `{"a":1}x`, "{\"a\": \"\x01\"}", "{\"a\": \"\xe4\"}", "{\"a\": \"\xed\xa0\xbd\"}",
		`{"a": "\ud83d"}`, `{"a": "\uD83D\uDE00"}`, `{"a": "\ude00"}`, `{"a": "\ude00\ud83d"}`, `{"a": "\ud83d\n"}`, `{"a": "\ud83d\ud83d\ude00"}`, `{"a": "\ud83dx\ude00"}`,
		`{"\ud83d": 1}`, `{"a": "\\ud83d"}`, `{"a": "\\\ud83d"}`, `{"a": "1e999999 \" 1e999999"}`, `{"1e999999": 1}`,
		`{"a": 1e131071}`, `{"a": -9.9E+131071}`, `{"a": 1e131072}`, `{"a": 10e131071}`, `{"a": 0.1e131072}`, `{"a": 0.001e131074}`, `{"a": 0.1e131073}`, `{"a": [1e999999]}`,
		`{"a": 0e999999}`, `{"a": 0e99999999999999999999}`, `{"a": 0e1073741824}`, `{"a": 1e-16383}`, `{"a": 1e-16384}`, `{"a": 0e-16384}`, `{"a": 1.0e-16382}`, `{"a": 1.0e-16383}`,
		`{"a": 1e99999999999999999999}`, `{"a": 1e-99999999999999999999}`, `{"a": 1` + strings.Repeat("0", 131071) + `}`, `{"a": 1` + strings.Repeat("0", 131072) + `}`,
		`{"a": 0.` + strings.Repeat("0", 16383) + `}`, `{"a": 0.` + strings.Repeat("0", 16384) + `}`,
	} {
		var object *bool
		err := w.root.QueryRow(t.Context(), "SELECT jsonb_typeof($1::text::jsonb) = 'object'", text).Scan(&object)
		err = cmp.Or(err, map[bool]error{false: errors.New("it is another value")}[object != nil && *object])
		if mine := queue.CheckObject("--payload", text); err == nil {
			require.NoError(t, mine, text)
		} else {
			require.ErrorContains(t, mine, "(--payload): ", "%s: %s", text, err)
		}
	}
	for text, want := range map[string]string{
		`{"n": "\ud83d"}`:   `the payload has \ud83d alone, half of a character (--payload): write the character itself, or both halves, such as \ud83d\ude00`,
		`{"n": 1e999999}`:   `the payload has a number that PostgreSQL cannot store, 1e999999 (--payload): write it as text, in quotes`,
		"{\"n\": \"\xe4\"}": `the payload is not UTF-8 (--payload): convert it to UTF-8, or write other characters than ASCII as \u and four digits`,
	} {
		require.EqualError(t, queue.Arg{Name: "payload", Kind: queue.ArgObject}.Check(text), want)
		_, _, err := enqueue.New(w.client("event_ingest_writer").Client).Put(t.Context(), enqueue.Job{Kind: "kg.reindex", Domain: "kg", Executor: "Agent", Payload: []byte(text)}, 0)
		require.EqualError(t, err, want)
	}
	require.NoError(t, queue.CheckObject("--payload", `{"n": "\u0000"}`))
}

// A heartbeat of the command line may have the keys that are read somewhere, and no other.
func TestHeartbeatKeys(t *testing.T) {
	files, err := filepath.Glob("schema/code/*.sql")
	require.NoError(t, err)
	keys := map[string]bool{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		pattern := `last_beat_payload ->> '(\w+)'`
		if filepath.Base(file) == "executors.sql" {
			pattern = `payload ->> '(\w+)'`
		}
		for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(string(text), -1) {
			keys[m[1]] = true
		}
	}
	_, list, _ := strings.Cut(queue.CheckHeartbeat("", `{"x": 1}`).Error(), "use ")
	require.ElementsMatch(t, slices.Collect(maps.Keys(keys)), strings.Split(list, ", "))
}
