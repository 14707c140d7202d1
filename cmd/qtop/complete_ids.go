package main

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/qtop/qtop/pgclient"
	"github.com/qtop/qtop/pgclient/queue"
)

// idQueries has, for kinds of ids that are not in the snapshot, the list that
// has them and a function that makes ids of its rows.
var idQueries = map[string]struct {
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

// idsOf returns the ids of a kind: fixed ones, those of a list, or those of the
// snapshot.
func idsOf(ctx context.Context, c *pgclient.Client, of string) []queue.ID {
	if of == "executor kind" {
		return named(queue.ExecutorKinds(), func(kind string) queue.ID { return queue.ID{ID: kind} })
	}
	if list, ok := idQueries[of]; ok {
		p, err := c.List(ctx, list.query)
		if err != nil {
			return nil
		}
		return list.ids(p)
	}
	s, err := c.Snapshot(ctx, completionAge)
	if err != nil {
		return nil
	}
	if of == "executor" { // the verbs that complete one refuse a tick worker
		s.Executors = slices.DeleteFunc(s.Executors, func(x queue.Executor) bool { return x.TickWorker })
	}
	return s.IDs(of)
}

// flagValues returns the values that a flag of the database can have, if the
// kind of the flag limits them; else its current value.
func flagValues(ctx context.Context, c *pgclient.Client, key string) []queue.ID {
	s, err := c.Snapshot(ctx, completionAge)
	if err != nil {
		return nil
	}
	i := slices.IndexFunc(s.Flags, func(f queue.Flag) bool { return f.Key.String() == key })
	if i < 0 {
		return nil
	}
	values := []string{s.Flags[i].Value.String()}
	switch s.Flags[i].Kind {
	case "boolean":
		values = []string{"true", "false"}
	case "mode":
		values = queue.SchedulerModes()
	}
	return named(values, func(v string) queue.ID { return queue.ID{ID: v} })
}
