package pgclient

import (
	"cmp"
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/qtop/qtop/pgclient/queue"
)

// IDs returns the ids of a kind that an operator may mean, with a few words about each: those of
// [queue.Snapshot.IDs], from a snapshot of at most this age, or the first page of a list ("endpoint",
// "dead letter", "job", "event type", "domain", "consumer" and others).
func (c *Client) IDs(ctx context.Context, of string, age time.Duration) ([]queue.ID, error) {
	if list, ok := idLists[of]; ok {
		p, err := c.List(ctx, list.query)
		if err != nil {
			return nil, err
		}
		return list.ids(p), nil
	}
	s, err := c.Snapshot(ctx, age)
	if err != nil {
		return nil, err
	}
	return s.IDs(of), nil
}

// Nearest returns the id of a kind (see IDs) that a misspelt one most likely means; "" if none is
// near, or if the ids cannot be read.
func (c *Client) Nearest(ctx context.Context, of, typed string) string {
	ids, err := c.IDs(ctx, of, time.Minute) // names rarely change
	if err != nil {
		return ""
	}
	var names []string
	for _, x := range ids {
		names = append(names, x.ID)
	}
	return queue.Nearest(typed, names)
}

// idLists has, for kinds of ids that are not in the snapshot, the list that has them and a function
// that makes ids of its rows.
var idLists = map[string]struct {
	query queue.Query
	ids   func(queue.Page) []queue.ID
}{
	"endpoint": {queue.Query{Kind: queue.ListEndpoints}, func(p queue.Page) []queue.ID {
		return named(queue.Of[queue.EndpointList](p).Endpoints, func(e queue.Endpoint) queue.ID {
			return queue.ID{ID: strconv.FormatInt(e.ID, 10), About: e.EventType.String() + " to " + e.Endpoint.String()}
		})
	}},
	"dead letter":          {queue.Query{Kind: queue.ListDeadLetters, Bare: true}, deadLetterIDs},
	"closed dead letter":   {queue.Query{Kind: queue.ListDeadLetters, Filter: "state:resolved", Bare: true}, deadLetterIDs},
	"requeued dead letter": {queue.Query{Kind: queue.ListDeadLetters, Filter: "state:requeued", Bare: true}, deadLetterIDs},
	"event": {queue.Query{Kind: queue.ListDeadLetters, Filter: "source:webhook", Bare: true}, func(p queue.Page) []queue.ID {
		return named(queue.Of[[]queue.DeadLetter](p), func(d queue.DeadLetter) queue.ID {
			return queue.ID{ID: "event:" + strconv.FormatInt(d.EventID, 10), About: d.EventType.String() + " to " + d.Endpoint.String()}
		})
	}},
	"job": {queue.Query{Kind: queue.ListJobs, Bare: true}, func(p queue.Page) []queue.ID {
		return named(queue.Of[[]queue.Job](p), func(j queue.Job) queue.ID {
			return queue.ID{ID: j.ID, About: j.Kind.String() + " of " + j.Domain.String() + ", " + j.Status}
		})
	}},
	"session": {queue.Query{Kind: queue.ListActivity}, func(p queue.Page) []queue.ID {
		return named(queue.Of[[]queue.Activity](p), func(s queue.Activity) queue.ID {
			return queue.ID{ID: s.ID, About: s.Login.String() + " " + s.Program.String() + ", " + s.State.String()}
		})
	}},
	"event subscription": {queue.Query{Kind: queue.ListEventSubscriptions}, func(p queue.Page) []queue.ID {
		return named(queue.Of[queue.EventSubscriptionList](p).Subscriptions, func(s queue.EventSubscription) queue.ID {
			return queue.ID{ID: strconv.FormatInt(s.ID, 10), About: s.Recipient.String() + ", " + queue.Choose(s.Mute, "muted", strings.TrimSpace(cmp.Or(s.Domain.String(), "every domain")+" "+s.Type.String()))}
		})
	}},
	"event type": {queue.Query{Kind: queue.ListEventTypes}, func(p queue.Page) []queue.ID {
		return named(queue.Of[[]queue.EventType](p), func(e queue.EventType) queue.ID {
			return queue.ID{ID: e.Domain.String() + "/" + e.EventType.String(), About: e.Description.String()}
		})
	}},
	"domain": {queue.Query{Kind: queue.ListRoutes}, func(p queue.Page) []queue.ID {
		return named(queue.Of[[]queue.Route](p), func(r queue.Route) queue.ID {
			return queue.ID{ID: r.Domain.String(), About: "routing " + queue.Choose(r.Enabled, "on", "off")}
		})
	}},
	"consumer": {queue.Query{Kind: queue.ListConsumers}, func(p queue.Page) []queue.ID {
		return named(queue.Of[[]queue.Consumer](p), func(c queue.Consumer) queue.ID {
			return queue.ID{ID: c.ID.String(), About: c.Domain.String() + "/" + c.EventType.String() + ", " + queue.Choose(c.Enabled, "enabled", "disabled")}
		})
	}},
	"row in quarantine": {queue.Query{Kind: queue.ListQuarantine}, func(p queue.Page) []queue.ID {
		return named(queue.Of[[]queue.Quarantined](p), func(q queue.Quarantined) queue.ID {
			return queue.ID{ID: strconv.FormatInt(q.ID, 10), About: q.Step.String() + " " + q.Target.String() + ", " + q.Code.String()}
		})
	}},
}

func deadLetterIDs(p queue.Page) []queue.ID {
	return named(queue.Of[[]queue.DeadLetter](p), func(d queue.DeadLetter) queue.ID {
		return queue.ID{ID: d.ID, About: d.Code.String() + " " + d.Endpoint.String()}
	})
}

func named[T any](rows []T, id func(T) queue.ID) (all []queue.ID) {
	for _, row := range rows {
		all = append(all, id(row))
	}
	return all
}
