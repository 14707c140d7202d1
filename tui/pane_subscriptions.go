package tui

import (
	"strconv"
	"strings"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
)

// subscriptionsPane is pane gs: from a rule to its changes, from a type to its resolution,
// and which rule D mutes.
func subscriptionsPane() pane {
	rule := func(at scene) (queue.EventSubscription, bool) { return eventRule(at, at.subject()) }
	mute := on(rule, func(s queue.EventSubscription) string { return strconv.FormatInt(s.ID, 10) }, "D mutes a rule; there is none under the cursor")
	return pane{
		Pane: queue.Pane{
			ID: queue.PaneRules, Keys: "gs", Title: "Subscriptions", Short: "Subs",
			From: "event_subscription, v_subscription_broadcast_share",
			Help: "who reads which events, what reaches nobody against its line, a type step by step; mute, new rule",
		},
		badge: views.RulesBadge,
		list: list{query: queue.Query{Kind: queue.ListRules}, count: func(p queue.Page) int {
			return len(queue.Of[queue.EventSubscriptionList](p).Subscriptions)
		}},
		source: func(at scene) views.Source {
			read := eventRules(at)
			return listed(at, views.Rules(read.Subscriptions, read.Broadcast))
		},
		enter: func(at scene, i int) level { return eventRuleLevel(at, at.level.grid.src.ID(i)) },
		above: func(at scene) []string {
			b := eventRules(at).Broadcast
			if b == nil && at.base().list.err != nil {
				b = &queue.Broadcast{}
			}
			return views.RulesTop(b, at.env, at.size.W)
		},
		acts: acts{
			targets: map[queue.ActionID]target{queue.ActRuleMute: mute, queue.ActRuleUnmute: mute, queue.ActRuleAdd: unroutedType, queue.ActEventTypeSet: eventType},
			second: func(at scene) bool {
				s, ok := rule(at)
				return ok && s.Mute
			},
		},
	}
}

func eventRules(at scene) queue.EventSubscriptionList {
	return queue.Of[queue.EventSubscriptionList](at.base().list.page)
}

func eventRule(at scene, id string) (queue.EventSubscription, bool) {
	return queue.Find(eventRules(at).Subscriptions, func(s queue.EventSubscription) bool { return strconv.FormatInt(s.ID, 10) == id })
}

// eventRuleLevel is a rule with its changes, or how a type is resolved.
func eventRuleLevel(at scene, id string) level {
	if _, ok := eventRule(at, id); !ok {
		return level{id: id, title: id, list: reads(queue.ListResolution, id), page: func(at scene) (views.Page, bool) {
			return views.ResolutionPage(id, queue.Of[*queue.Resolution](at.level.list.page), at.env, at.size.W), true
		}}
	}
	return level{id: id, title: "rule " + id, list: reads(queue.ListFlagHistory, "subscription "+id), page: func(at scene) (views.Page, bool) {
		s, ok := eventRule(at, id)
		return views.RulePage(s, known(at.level, queue.Of[[]queue.AuditEntry](at.level.list.page)), at.env, at.size.W), ok
	}}
}

// unroutedType starts the form of N with the type under the cursor that reaches
// nobody.
func unroutedType(at scene, req *queue.Request) string {
	if b := eventRules(at).Broadcast; b != nil {
		if u, ok := queue.Find(b.Unrouted, func(u queue.UnroutedType) bool { return u.ID() == at.subject() }); ok {
			req.Args["domain"], req.Args["type"] = u.Domain.String(), u.Type.String()
		}
	}
	return ""
}

// eventType starts the form of E with the type under the cursor: that of a rule, or one
// that reaches nobody.
func eventType(at scene, req *queue.Request) string {
	name := at.subject()
	if s, ok := eventRule(at, name); ok {
		name = s.Domain.String() + "/" + s.Type.String()
	}
	domain, kind, _ := strings.Cut(name, "/")
	if domain == "" || kind == "" {
		return at.noRow("E changes one type, and this rule is for many")
	}
	req.Targets = []string{name}
	return ""
}
