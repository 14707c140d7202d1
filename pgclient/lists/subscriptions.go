package lists

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/qtop/qtop/pgclient/filtersql"
	"github.com/qtop/qtop/pgclient/pgpool"
	"github.com/qtop/qtop/pgclient/pgrow"
	"github.com/qtop/qtop/pgclient/queue"
)

// mostSubscriptions is the largest number of event subscriptions that are read; DP6 §5 expects fewer
// than a thousand.
const mostSubscriptions = 10_000

// subscriptions reads the event subscriptions and the unrouted event types that match the filter, and
// the broadcast share of all events.
func subscriptions(ctx context.Context, db *pgpool.Pool, q queue.Query, p *queue.Page) error {
	f, err := queue.ParseFilter(q.Filter, queue.EventSubscriptionFields())
	if err != nil {
		return filtersql.Error(err)
	}
	if err := stamp(ctx, db, p); err != nil {
		return err
	}
	list := queue.EventSubscriptionList{}
	list.Subscriptions, err = pgrow.All[queue.EventSubscription](ctx, db, "SELECT "+pgrow.EventSubscriptionColumns+` FROM public.event_subscription s
		ORDER BY s.event_domain NULLS FIRST, s.event_type NULLS FIRST, s.event_stream NULLS FIRST, s.recipient_ref, s.subscription_id LIMIT $1`, mostSubscriptions)
	p.TotalBound = len(list.Subscriptions) == mostSubscriptions

	if err != nil {
		return err
	}
	if list.Broadcast, err = broadcast(ctx, db); err != nil {
		return err
	}
	list.Subscriptions = slices.DeleteFunc(list.Subscriptions, func(s queue.EventSubscription) bool { return !f.Match(s.Field, p.AsOf) })
	list.Broadcast.Unrouted = slices.DeleteFunc(list.Broadcast.Unrouted, func(u queue.UnroutedType) bool { return !f.Match(u.Field, p.AsOf) })
	p.Rows, p.Total = list, int64(len(list.Subscriptions))
	return nil
}

// broadcast reads the broadcast share of each event type, and the sums per domain and in total.
func broadcast(ctx context.Context, db *pgpool.Pool) (*queue.Broadcast, error) {
	b := &queue.Broadcast{Shares: []queue.BroadcastShare{{}}, Unrouted: []queue.UnroutedType{}}
	err := db.QueryRow(ctx, `SELECT COALESCE((SELECT value = 'true' FROM public.dot_config WHERE key = 'queue.subscription_resolution.enabled'), false),
		COALESCE((SELECT n FROM public.v_dot_config_number WHERE key = 'queue.subscription_resolution.broadcast_warn_percent'), 5),
		(SELECT array_agg((SELECT m.value FROM public.queue_metric_sample m WHERE m.metric = 'broadcast_percent' AND m.labels = '{}'
			AND m.at >= now() - make_interval(hours => h) AND m.at < now() - make_interval(hours => h) + interval '10 minutes' ORDER BY m.at LIMIT 1) ORDER BY h DESC)
			FROM generate_series(1, 24) h)`).Scan(&b.On, &b.Line, &b.Trend)
	if err != nil {
		return nil, err
	}
	at := map[queue.Text]int{}
	add := func(s *queue.BroadcastShare, u queue.UnroutedType) {
		s.Events += u.Events
		s.Broadcast += u.Broadcast
	}
	var u queue.UnroutedType
	err = pgrow.Visit(ctx, db, []any{&u.Domain, &u.Type, &u.Stream, &u.Events, &u.Broadcast}, func() {
		i, ok := at[u.Domain]
		if !ok {
			i = len(b.Shares)
			at[u.Domain] = i
			b.Shares = append(b.Shares, queue.BroadcastShare{Domain: u.Domain})
		}
		add(&b.Shares[0], u)
		add(&b.Shares[i], u)
		if u.Broadcast > 0 {
			b.Unrouted = append(b.Unrouted, u)
		}
	}, `SELECT b.event_domain, b.event_type, COALESCE(r.event_stream, ''), b.events, b.broadcast
		FROM public.fn_event_broadcast(NULL::bigint) b LEFT JOIN public.event_type_registry r USING (event_domain, event_type)
		ORDER BY b.broadcast DESC, b.event_domain, b.event_type`)
	for i := range b.Shares {
		if s := &b.Shares[i]; s.Events > 0 {
			s.Percent = 100 * float64(s.Broadcast) / float64(s.Events)
			s.Over = 100*s.Broadcast > b.Line*s.Events
		}
	}
	slices.SortFunc(b.Shares[1:], func(x, y queue.BroadcastShare) int {
		return cmp.Or(cmp.Compare(y.Broadcast, x.Broadcast), cmp.Compare(x.Domain.String(), y.Domain.String()))
	})
	return b, err
}

// resolution returns the recipients of an event DOMAIN/TYPE[/STREAM]. Without a stream, the stream
// comes from the registry of event types. Query.Scope narrows the event to a subject table and a
// payload.
func resolution(ctx context.Context, db *pgpool.Pool, q queue.Query) (*queue.Resolution, error) {
	domain, kind, ok := strings.Cut(q.ID, "/")
	if !ok || domain == "" || kind == "" {
		return nil, queue.NewError(queue.KindUsage, "no event type given", "", "write DOMAIN/TYPE or DOMAIN/TYPE/STREAM")
	}
	payload := cmp.Or(q.Scope.Payload, "{}")
	if err := (queue.Arg{Name: "payload", Kind: queue.ArgObject}).Check(payload); err != nil {
		return nil, err
	}
	stream := ""
	if i := strings.LastIndex(kind, "/"); i > 0 { // the type may itself contain slashes: ask the registry
		var known bool
		if err := db.QueryRow(ctx, "SELECT EXISTS (SELECT 1 FROM public.event_type_registry WHERE event_domain = $1 AND event_type = $2)", domain, kind).Scan(&known); err != nil {
			return nil, err
		}
		if !known {
			kind, stream = kind[:i], kind[i+1:]
		}
	}
	r := &queue.Resolution{Domain: queue.Clean(domain), Type: queue.Clean(kind), SubjectTable: queue.Clean(q.Scope.SubjectTable), Payload: queue.Clean(payload), Subscriptions: []queue.ResolvedSubscription{}}
	err := db.QueryRow(ctx, `SELECT COALESCE(NULLIF($3, ''), r.event_stream, ''), r.event_domain IS NOT NULL, COALESCE(f.value = 'true', false), COALESCE(b.events, 0), COALESCE(b.broadcast, 0)
		FROM (VALUES (1)) x LEFT JOIN public.event_type_registry r ON r.event_domain = $1 AND r.event_type = $2
		LEFT JOIN public.dot_config f ON f.key = 'queue.subscription_resolution.enabled'
		LEFT JOIN public.fn_event_broadcast(NULL::bigint) b ON b.event_domain = $1 AND b.event_type = $2`, domain, kind, stream).
		Scan(&stream, &r.Registered, &r.On, &r.Events, &r.Broadcast)
	if err != nil {
		return nil, err
	}
	r.Stream = queue.Clean(stream)
	r.Subscriptions, err = pgrow.All[queue.ResolvedSubscription](ctx, db, `SELECT s.subscription_id, s.recipient_ref, s.event_domain, s.event_type, s.event_stream, s.scope_subject_table,
			s.scope_filter::text, s.outcome = 'muted', s.step, s.outcome
		FROM public.fn_event_resolve_explain($1::text, $2::text, $3::text, NULLIF($4, ''), $5::jsonb) s`, domain, kind, stream, q.Scope.SubjectTable, payload)
	for _, x := range r.Subscriptions {
		if x.Outcome == "taken" && !slices.Contains(r.Recipients, x.Recipient) {
			r.Recipients = append(r.Recipients, x.Recipient)
		}
	}
	if len(r.Recipients) == 0 {
		r.Recipients = []queue.Text{queue.Clean("broadcast")}
	}
	return r, err
}
