// Lists: a filter selects the same rows in SQL as in memory, and consecutive pages neither skip nor
// repeat a row.

package pgclient_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/lists"
	"github.com/qtop/qtop/pgclient/queue"
)

// deadLetterField returns the fields of a dead letter by the names that a filter uses.
func deadLetterField(l queue.DeadLetter, asOf time.Time) func(string) (any, bool) {
	return func(name string) (any, bool) {
		switch name {
		case "id":
			return l.ID, true
		case "code":
			return l.Code, true
		case "endpoint":
			return l.Endpoint, true
		case "subscription":
			return l.SubscriptionID, l.Source == "webhook"
		case "domain":
			return l.Domain, true
		case "kind":
			if l.Source == "job" {
				return l.Endpoint, true
			}
			return l.Source, true
		case "source":
			return l.Source, true
		case "type":
			return l.EventType, true
		case "age":
			return asOf.Sub(l.FailedAt), true
		case "failed":
			return l.FailedAt, true
		case "state":
			return l.State, true
		}
		return nil, false
	}
}

func all(t *testing.T, c *console, filter string) (deadLetters []queue.DeadLetter) {
	t.Helper()
	q := queue.Query{Kind: queue.ListDeadLetters, Filter: filter, Limit: 5}
	for {
		p, err := c.List(context.Background(), q)
		require.NoError(t, err, filter)
		deadLetters = append(deadLetters, queue.Of[[]queue.DeadLetter](p)...)
		if q.After = p.Next; p.Next == "" {
			require.EqualValues(t, len(deadLetters), p.Total, filter)
			return deadLetters
		}
		require.Len(t, queue.Of[[]queue.DeadLetter](p), 5, "a page that is not the last is full")
		require.LessOrEqual(t, int64(len(deadLetters)), p.Total, "pages do not repeat")
	}
}

func ids(deadLetters []queue.DeadLetter) []string {
	out := []string{}
	for _, l := range deadLetters {
		out = append(out, l.ID)
	}
	return out
}

func TestFilterMeansTheSame(t *testing.T) {
	w := newWorld(t)
	made := w.die(
		deadLetter{"order.paid", "https://hooks.acme.test/a", "HTTP_503", time.Minute},
		deadLetter{"order.paid", "https://hooks.acme.test/a", "HTTP_500", time.Hour},
		deadLetter{"order_sent", "https://hooks.acme.test:8443/x", "TIMEOUT", 2 * time.Hour},
		deadLetter{"Order%Odd", "https://other.test/", "HTTP_503", 26 * time.Hour},
		deadLetter{`back\slash`, "https://other.test/p", "DNS_FAILURE", 48 * time.Hour},
		deadLetter{"ünïcode", "http://10.0.0.1:80/", "HTTP_404", 3 * time.Second},
		deadLetter{"order.paid", "https://hooks.acme.test/a", "HTTP_503", 90 * time.Minute},
		deadLetter{"star*type", "garbage url", "BAD_URL", 30 * 24 * time.Hour},
	)
	client := w.client("queue_viewer", "dead_letter_operator")
	for _, r := range []queue.Request{
		{Action: queue.ActResolve, Targets: made[4:5], Reason: "r", Args: map[string]string{"resolution": "duplicate"}},
		{Action: queue.ActRequeue, Targets: made[6:7], Reason: "r"},
	} {
		p, err := client.Plan(context.Background(), r)
		require.NoError(t, err)
		res, err := client.Apply(context.Background(), p)
		require.NoError(t, err)
		require.EqualValues(t, 1, res.Done)
	}
	dead := w.dieJobs(
		jobDeadLetter{"kg.reindex", "kg", "HANDLER_ERROR", 30 * time.Minute},
		jobDeadLetter{"kg.reindex", "kg", "TIMEOUT", 30 * time.Minute},
		jobDeadLetter{"iu_route", "iu", "HTTP_503", 2 * time.Second},
		jobDeadLetter{"webhook", "webhook", "HTTP_503", 40 * 24 * time.Hour},
		jobDeadLetter{"A:b-c.d_e", "x", "LEASE_LOST_LIMIT", 100 * time.Minute},
		jobDeadLetter{"kg.reindex", "iu", "HANDLER_ERROR", time.Minute},
	)
	for _, r := range []queue.Request{
		{Action: queue.ActResolve, Targets: dead[1:2], Reason: "r", Args: map[string]string{"resolution": "abandoned"}},
		{Action: queue.ActRequeue, Targets: dead[5:6], Reason: "r"},
	} {
		require.EqualValues(t, 1, apply(t, client, plan(t, client, r)).Done)
	}
	everything := all(t, client, "state:*")
	require.Len(t, everything, len(made)+len(dead))
	open := all(t, client, "")
	require.Len(t, open, len(made)+len(dead)-4)
	sub := get[int64](w, "SELECT min(id) FROM public.subscriptions")
	filters := []string{
		"state:open", "state:requeued", "state:resolved", "state:open|resolved", "!state:open", "state=open", "state:REQ*",
		"code:HTTP_503", "code:http_503", "code=http_503", "code=HTTP_503", "code:HTTP_*", "code:HTTP_50?", "!code:HTTP_*", "code:HTTP_503|TIMEOUT",
		"!code:HTTP_503|TIMEOUT", "endpoint:hooks.acme*", "endpoint:*acme*", "!endpoint:hooks.acme.test", `endpoint:"garbage url"`, "endpoint=other.test",
		"type:order.paid", "type:order?paid", "type:order_*", "type:*%*", `type:star\**`, `type:*\**`, `type:back\\slash`, "type:ünïcode", "type:ORDER*",
		"age>1h", "age<2h", "age>=26h", "age<=1m30s", "age>1d age<3d", "failed>-90m", "failed<-1d", "!failed<-1d", "failed>2020-01-01", "failed<2020-01-01T02:00",
		fmt.Sprint("subscription:", sub), fmt.Sprint("!subscription:", sub), fmt.Sprint("subscription>", sub-1), "subscription>0.5", "id:" + made[2], "id=" + made[2],
		"id>" + made[2], "id<=" + made[2], "!id>" + made[2], "acme", "503", "open", "!open", "webhook", "order paid", "!acme", "sla*h", "%", "_", `\*`,
		"source:webhook", "source:job", "domain:webhook", "kind:webhook", "acme code:HTTP_50* age>30m", "requeued",
		"id:" + dead[0], "id=" + dead[2], "!id:" + dead[0], "id:job:*", "!id:job:*", "kind:kg.*", "endpoint:kg.reindex", "!kind:kg.reindex state:*", "domain:kg|iu",
		"source:job state:requeued|resolved", "source:job age>30m code:HANDLER_*", "kg", "subscription>0", "!subscription>0", "type:\"\"", "!source:job reindex",
		"kind:A:b-c.d_e", "failed<-1d source:job", "!source:webhook !domain:kg",
	}
	for _, text := range filters {
		f, err := queue.ParseFilter(text, queue.DeadLetterFields())
		require.NoError(t, err, text)
		want := []string{}
		stated := false
		for _, term := range f.Terms {
			stated = stated || term.Field == "state"
		}
		now := time.Now()
		for _, l := range everything {
			if (stated || l.State == "open") && f.Match(deadLetterField(l, now), now) {
				want = append(want, l.ID)
			}
		}
		require.ElementsMatch(t, want, ids(all(t, client, text)), "filter %s", text)
	}
	require.Greater(t, len(filters), 60)
	for _, bad := range []string{"x", "1 x", "1 2026-01-01T00:00:00Z y", "1 2 3 4"} {
		_, err := client.List(context.Background(), queue.Query{Kind: queue.ListDeadLetters, After: bad})
		kind(t, queue.KindUsage, err)
	}
}

func TestDeadLetterDetail(t *testing.T) {
	w := newWorld(t)
	made := w.die(deadLetter{"order", "https://hooks.acme.test/a?token=x", "HTTP_503", time.Minute})
	client := w.client("queue_viewer", "dead_letter_operator")
	read := func() *queue.DeadLetterDetail {
		t.Helper()
		p, err := client.List(context.Background(), queue.Query{Kind: queue.ListDeadLetter, ID: made[0]})
		require.NoError(t, err)
		return queue.Of[*queue.DeadLetterDetail](p)
	}
	d := read()
	require.JSONEq(t, `{"n": 12345678901234567890, "password": "•••"}`, d.Payload.String())
	require.Contains(t, d.Payload.String(), "12345678901234567890")
	require.Len(t, d.Attempts, 1)
	require.Equal(t, "HTTP_503", d.Attempts[0].Code.String())
	require.True(t, d.Unsigned)
	require.Equal(t, get[string](w, "SELECT webhook_id::text FROM public.webhook_delivery_sagas WHERE id = $1", d.SagaID), d.WebhookID)
	require.Equal(t, d.WebhookID, d.Attempts[0].WebhookID)
	require.Equal(t, "saga DeadLettered", d.Lineage[1].Kind+" "+d.Lineage[1].Status)
	require.True(t, get[bool](w, "SELECT updated_at = $2 AND created_at < $2 FROM public.webhook_delivery_sagas WHERE id = $1", d.SagaID, *d.Lineage[1].At), "the time of the state")
	p, err := client.Plan(context.Background(), queue.Request{Action: queue.ActRequeue, Targets: made, Reason: "back"})
	require.NoError(t, err)
	_, err = client.Apply(context.Background(), p)
	require.NoError(t, err)
	d = read()
	require.Equal(t, "requeued ann", d.State+" "+d.RequeuedBy.String())
	require.NotZero(t, d.NewSagaID)
	require.Equal(t, "0 event, 0 saga, 0 job, 0 dead_letter *, 0 requeue ann, 1 saga", chain(d))
}

// chain writes a lineage in short: per generation its number, its kind, who made it, and where the
// dead letter is.
func chain(d *queue.DeadLetterDetail) string {
	var steps []string
	for _, s := range d.Lineage {
		by := s.By.String()
		if s.Kind == "job" {
			by = ""
		}
		step := strings.TrimSpace(fmt.Sprint(s.Generation, " ", s.Kind, " ", by))
		if s.Current {
			step += " *"
		}
		steps = append(steps, step)
	}
	return strings.Join(steps, ", ")
}

func TestAuditPages(t *testing.T) {
	w := newWorld(t)
	for i := range 12 {
		w.exec("SELECT public.fn_dot_config_set('webhook.max_attempts', $1, $2, 'r')", fmt.Sprint(10+i), []string{"ann", "bob"}[i%2])
	}
	client := w.client("queue_viewer")
	var seen []int64
	q := queue.Query{Kind: queue.ListAudit, Filter: "actor:ann target:webhook.*", Limit: 4}
	for {
		p, err := client.List(context.Background(), q)
		require.NoError(t, err)
		require.EqualValues(t, 6, p.Total)
		for _, e := range queue.Of[[]queue.AuditEntry](p) {
			require.Equal(t, "ann", e.Actor.String())
			require.True(t, json.Valid(e.Before) && json.Valid(e.After))
			seen = append(seen, e.ID)
		}
		if q.After = p.Next; p.Next == "" {
			break
		}
	}
	require.Len(t, seen, 6)
	require.IsDecreasing(t, seen)
	p, err := client.List(context.Background(), queue.Query{Kind: queue.ListFlagHistory, ID: "webhook.max_attempts"})
	require.NoError(t, err)
	require.Len(t, queue.Of[[]queue.AuditEntry](p), 12)
	p, err = client.List(context.Background(), queue.Query{Kind: queue.ListAudit, Filter: "age>1h"})
	require.NoError(t, err)
	require.Empty(t, queue.Of[[]queue.AuditEntry](p))
	for _, f := range []string{"bob", "!bob outcome:done", "role:postgres", "reason=r", "at>-1h", "action:flag_set", "age<1h !actor:x"} {
		p, err = client.List(context.Background(), queue.Query{Kind: queue.ListAudit, Filter: f})
		require.NoError(t, err, f)
		require.NotEmpty(t, queue.Of[[]queue.AuditEntry](p), f)
	}
}

// A filter with a mistake is a usage error in every list that takes filters.
func TestEveryListRefusesAWrongFilter(t *testing.T) {
	w := newWorld(t)
	c := w.client("queue_viewer")
	ctx, refuse := context.Background(), map[queue.ListKind]bool{}
	for _, list := range lists.Kinds() {
		_, err := c.List(ctx, queue.Query{Kind: list, Filter: "bogus:x"})
		if fe := (*queue.FilterError)(nil); errors.As(err, &fe) {
			refuse[list] = true
			require.Equal(t, queue.KindUsage, queue.KindOf(err), "%s: %v", list, err)
			require.ErrorContains(t, err, "filter, column 1", list)
		}
	}
	for _, list := range []queue.ListKind{
		queue.ListDeadLetters, queue.ListJobs, queue.ListOperations, queue.ListEndpoints, queue.ListNotify, queue.ListEventSubscriptions, queue.ListAudit, queue.ListFlagHistory,
	} {
		require.True(t, refuse[list], "%s takes filters", list)
	}
}

// Consecutive pages of operations, and of the items of an operation, neither skip nor repeat a row.
// Rows are counted only if the query asks for it.
func TestOperationPages(t *testing.T) {
	w := newWorld(t)
	w.exec(`INSERT INTO public.queue_bulk_operation (kind, filter, created_by, reason, state, state_by, rate_per_second, brake_percent, canary, canary_passed, frozen_count, next_item)
		SELECT 'requeue_webhook', 'f' || i, CASE WHEN i % 5 = 0 THEN 'ben' ELSE 'ann' END, 'r', 'planned', 'ann', 1, 1, 1, false, 25, 1 FROM generate_series(1, 25) i`)
	w.exec(`INSERT INTO public.queue_bulk_operation_item (operation_id, item_no, target, outcome, at) SELECT 3, i, i::text, 'done', now() FROM generate_series(1, 25) i`)
	w.exec("UPDATE public.queue_bulk_operation SET next_item = 24 WHERE operation_id = 3")
	c := w.client("queue_viewer")
	for _, x := range []struct {
		q    queue.Query
		want []int64
	}{
		{queue.Query{Kind: queue.ListOperations}, down(25, 1, 1)}, {queue.Query{Kind: queue.ListOperations, Filter: "by:ben"}, down(25, 5, 5)},
		{queue.Query{Kind: queue.ListOperation, ID: "3"}, down(23, 1, 1)},
	} {
		var have []int64
		for x.q.Limit = 5; ; {
			p, err := c.List(context.Background(), x.q)
			require.NoError(t, err)
			if x.q.Kind == queue.ListOperations {
				require.Equal(t, x.q.Bare, p.Total == 0)
				for _, o := range queue.Of[[]queue.Operation](p) {
					have = append(have, o.ID)
				}
			} else {
				for _, i := range queue.Of[*queue.OperationDetail](p).Items {
					have = append(have, i.No)
				}
			}
			if p.Next == "" {
				break
			}
			require.Less(t, len(have), 30, "it goes on")
			x.q.After, x.q.Bare = p.Next, true
		}
		require.Equal(t, x.want, have, "%v", x.q)
	}
	_, err := c.List(context.Background(), queue.Query{Kind: queue.ListOperations, After: "x"})
	require.ErrorContains(t, err, "the position of the next page cannot be read")
}

func down(from, to, by int64) (ns []int64) {
	for ; from >= to; from -= by {
		ns = append(ns, from)
	}
	return ns
}
