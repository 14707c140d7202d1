package tui

import (
	"strconv"
	"strings"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
)

// subscriptionsPane returns pane gs: event subscriptions, and event types that
// reach no recipient but broadcast. Enter on a subscription opens its page
// with its changes, on an event type the page that resolves who receives it.
func subscriptionsPane() pane {
	subscription := func(at scene) (queue.EventSubscription, bool) { return eventSubscriptionBy(at, at.subject()) }
	mute := rowTarget(subscription, func(s queue.EventSubscription) string { return strconv.FormatInt(s.ID, 10) }, "D needs an event subscription under the cursor")
	return pane{
		Pane: queue.Pane{
			ID: queue.PaneSubscriptions, Keys: "gs", Title: "Subscriptions", Short: "Subs",
			From: "event_subscription, v_subscription_broadcast_share",
			Help: "event subscriptions, the share of events that only broadcast reaches, resolution of a type step by step; mute, add",
		},
		badge: views.EventSubscriptionsBadge,
		list: list{query: queue.Query{Kind: queue.ListEventSubscriptions}, count: func(p queue.Page) int {
			return len(queue.Of[queue.EventSubscriptionList](p).Subscriptions)
		}},
		source: func(at scene) views.Source {
			read := eventSubscriptions(at)
			return listSource(at, views.EventSubscriptions(read.Subscriptions, read.Broadcast))
		},
		enter: func(at scene, i int) level { return eventSubscriptionLevel(at, at.level.grid.src.ID(i)) },
		header: func(at scene) []string {
			b := eventSubscriptions(at).Broadcast
			if b == nil && at.base().list.err != nil {
				b = &queue.Broadcast{}
			}
			return views.BroadcastHead(b, at.env, at.size.W)
		},
		acts: acts{
			targets: map[queue.ActionID]target{queue.ActEventSubscriptionMute: mute, queue.ActEventSubscriptionUnmute: mute, queue.ActEventSubscriptionAdd: addTarget, queue.ActEventTypeSet: eventTypeTarget},
			usesSecond: func(at scene) bool {
				s, ok := subscription(at)
				return ok && s.Mute
			},
		},
	}
}

func eventSubscriptions(at scene) queue.EventSubscriptionList {
	return queue.Of[queue.EventSubscriptionList](at.base().list.page)
}

func eventSubscriptionBy(at scene, id string) (queue.EventSubscription, bool) {
	return queue.Find(eventSubscriptions(at).Subscriptions, func(s queue.EventSubscription) bool { return strconv.FormatInt(s.ID, 10) == id })
}

// eventSubscriptionLevel returns the page of an event subscription with its
// changes or, for the row of an event type, the page that resolves who
// receives that type.
func eventSubscriptionLevel(at scene, id string) level {
	if _, ok := eventSubscriptionBy(at, id); !ok {
		return level{id: id, title: id, list: listOf(queue.ListResolution, id), page: func(at scene) (views.Page, bool) {
			return views.ResolutionPage(id, queue.Of[*queue.Resolution](at.level.list.page), at.env, at.size.W), true
		}}
	}
	return level{id: id, title: "subscription " + id, rowBelow: true, list: listOf(queue.ListFlagHistory, "subscription "+id), page: func(at scene) (views.Page, bool) {
		s, ok := eventSubscriptionBy(at, id)
		return views.EventSubscriptionPage(s, loaded(at.level, queue.Of[[]queue.AuditEntry](at.level.list.page)), at.env, at.size.W), ok
	}}
}

// addTarget fills in the form of N (add an event subscription): the event type
// under the cursor, if no recipient gets it.
func addTarget(at scene, req *queue.Request) string {
	if b := eventSubscriptions(at).Broadcast; b != nil {
		if u, ok := queue.Find(b.Unrouted, func(u queue.UnroutedType) bool { return u.ID() == at.subject() }); ok {
			req.Args["domain"], req.Args["type"] = u.Domain.String(), u.Type.String()
		}
	}
	return ""
}

// eventTypeTarget fills in the target of E (change an event type): the type of
// the event subscription under the cursor, or the event type under the cursor.
func eventTypeTarget(at scene, req *queue.Request) string {
	name := at.subject()
	if s, ok := eventSubscriptionBy(at, name); ok {
		name = s.Domain.String() + "/" + s.Type.String()
	}
	domain, kind, _ := strings.Cut(name, "/")
	if domain == "" || kind == "" {
		return at.noRow("E changes one event type; this subscription covers several")
	}
	req.Targets = []string{name}
	return ""
}
