package tui

// This file is pane gs: from a rule to its changes, from a type to its resolution,
// and which rule D mutes.

import (
	"strconv"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
)

// ruleLevel is the level under a row of pane gs: a rule with its changes, or how a
// type is resolved.
func (m *root) ruleLevel(id string, page level) level {
	if _, ok := m.ruleByID(id); ok {
		page.title = "rule " + id
		page.list.query = queue.Query{Kind: queue.ListFlagHistory, ID: "subscription " + id}
		return page
	}
	page.list.query = queue.Query{Kind: queue.ListResolution, ID: id}
	return page
}

func (m *root) ruleByID(id string) (queue.EventSubscription, bool) {
	for _, s := range queue.Of[queue.EventSubscriptionList](m.panes[queue.PaneRules].levels[0].list.page).Subscriptions {
		if strconv.FormatInt(s.ID, 10) == id {
			return s, true
		}
	}
	return queue.EventSubscription{}, false
}

func (m *root) rulePage(l *level, e views.Env, w int) (views.Page, bool) {
	if s, ok := m.ruleByID(l.id); ok {
		return views.RulePage(s, known(l.list, queue.Of[[]queue.AuditEntry](l.list.page)), e, w), true
	}
	if l.list.query.Kind == queue.ListFlagHistory {
		return views.Page{}, false // the rule has left the list: it stays as it was
	}
	return views.ResolutionPage(l.id, queue.Of[*queue.Resolution](l.list.page), e, w), true
}

// rule is the one that is open or under the cursor.
func (m *root) rule() (queue.EventSubscription, bool) {
	if m.at != queue.PaneRules {
		return queue.EventSubscription{}, false
	}
	return m.ruleByID(m.subject())
}

// muting is what D works on.
func (m *root) muting(req queue.Request) (queue.Request, string) {
	s, ok := m.rule()
	if !ok {
		return req, m.noRow("D mutes a rule; there is none under the cursor")
	}
	req.Targets = []string{strconv.FormatInt(s.ID, 10)}
	return req, ""
}

// ruling starts the form of N with the type under the cursor that reaches nobody.
func (m *root) ruling(req queue.Request) (queue.Request, string) {
	l := &m.panes[queue.PaneRules].levels[0]
	if b := queue.Of[queue.EventSubscriptionList](l.list.page).Broadcast; b != nil {
		for _, u := range b.Unrouted {
			if u.ID() == m.subject() {
				req.Args["domain"], req.Args["type"] = u.Domain.String(), u.Type.String()
			}
		}
	}
	return req, ""
}

// share is what stands above the table of pane gs.
func (m *root) share(l *level, e views.Env, w int) []string {
	b := queue.Of[queue.EventSubscriptionList](l.list.page).Broadcast
	if b == nil && l.list.err != nil {
		b = &queue.Broadcast{}
	}
	return views.RulesTop(b, e, w)
}
