package tui

// This file says what each level shows: which view is drawn over which rows.

import (
	"strconv"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
)

// source is the table of a level.
func (m *root) source(p *pane, l *level) views.Source {
	pic := m.feed.picture
	if l.kind == kindLetters {
		return m.listed(views.Letters(queue.Of[[]queue.DeadLetter](l.list.page)), l.list)
	}
	if l.kind == kindJobs {
		return m.listed(views.Jobs(queue.Of[[]queue.Job](l.list.page), m.size.W), l.list)
	}
	var src views.Source
	switch p.id {
	case queue.PaneHealth:
		src = views.Health(pic)
	case queue.PaneAlerts:
		src = views.Alerts(pic)
	case queue.PaneExecutors:
		src = views.Executors(pic)
	case queue.PaneDead:
		src = views.DeadGroups(pic)
	case queue.PaneQueues:
		src = views.Lanes(pic, m.size.W)
	case queue.PaneScheduler:
		src = views.Scheduler(pic)
	case queue.PaneFlags:
		src = views.Flags(pic)
	case queue.PaneHost:
		return views.Loops(m.local)
	case queue.PaneAudit:
		return m.listed(views.Audit(queue.Of[[]queue.AuditEntry](l.list.page)), l.list)
	case queue.PaneWebhooks:
		return m.listed(views.Webhooks(queue.Of[queue.EndpointList](l.list.page).Endpoints, queue.Of[queue.EndpointList](l.list.page).Leases), l.list)
	case queue.PaneNotify:
		return m.listed(views.Notifications(queue.Of[*queue.Notifications](l.list.page)), l.list)
	case queue.PaneRules:
		return m.listed(views.Rules(queue.Of[queue.EventSubscriptionList](l.list.page).Subscriptions, queue.Of[queue.EventSubscriptionList](l.list.page).Broadcast), l.list)
	case queue.PaneOps:
		return m.listed(views.Operations(queue.Of[[]queue.Operation](l.list.page)), l.list)
	}
	if pic == nil {
		src.Empty = []string{"Waiting for the first picture of the database."}
	} else if src.Note != "" {
		src.Empty = []string{"This could not be read."}
	}
	return src
}

// listed says of a list that was not read yet, or could not be, that it is so.
func (m *root) listed(src views.Source, l list) views.Source {
	switch {
	case l.err != nil && l.rows() == 0:
		src.Empty = []string{"This could not be read.", why(l.err)}
	case l.err != nil:
		src.Note = "fresh rows: " + why(l.err)
	case !l.read && !l.loading && m.feed.paused:
		src.Empty = []string{"This list was not read yet, and now it is not read: p goes on."}
	case !l.read:
		src.Empty = []string{"Reading"}
	}
	return src
}

// page is the lines of a page level. A row that has left the picture is shown as
// it last was.
func (m *root) page(p *pane, l *level, e views.Env, w int) (views.Page, bool) {
	pic := m.feed.picture
	if l.why != "" {
		return views.WhyPage(l.why, queue.Of[*queue.Why](l.list.page), e, w), true
	}
	if p.id == queue.PaneWebhooks {
		return m.hookPage(p, l, e, w)
	}
	if p.id == queue.PaneNotify {
		return views.NotificationPage(queue.Of[*queue.Notifications](p.levels[0].list.page), l.id, e, w)
	}
	if p.id == queue.PaneRules {
		return m.rulePage(l, e, w)
	}
	if p.id == queue.PaneHost {
		for _, x := range m.loops() {
			if x.Name == l.id {
				return views.LoopPage(x, e, w), true
			}
		}
		return views.Page{}, false
	}
	if p.id == queue.PaneDead {
		return views.LetterPage(l.letter, m.letterDetail(l), e, w), true
	}
	if p.id == queue.PaneAudit {
		return views.AuditPage(l.audit, e, w), true
	}
	if p.id == queue.PaneOps {
		var items []queue.OperationItem
		if d := queue.Of[*queue.OperationDetail](l.list.page); d != nil {
			l.op, items = d.Operation, d.Items
		}
		return views.OperationPage(l.op, known(l.list, items), e, w), true
	}
	if l.job.ID != "" {
		return views.JobPage(l.job, m.jobDetail(l), e, w), true
	}
	if p.id == queue.PaneQueues {
		return views.QueuesPage(pic, l.id, e, w)
	}
	if pic == nil {
		return views.Page{}, false
	}
	i := find(m.source(p, &level{kind: kindTable}), l.id)
	if i < 0 {
		return views.Page{}, false
	}
	switch p.id {
	case queue.PaneHealth:
		return views.HealthPage(pic, pic.Health[i], e, w), true
	case queue.PaneAlerts:
		return views.AlertPage(pic.Alerts[i], known(l.list, queue.Of[[]queue.AlertAck](l.list.page)), e, w), true
	case queue.PaneExecutors:
		return m.executorPage(i, e, w)
	case queue.PaneScheduler:
		return m.schedulerPage(l, i, e, w), true
	case queue.PaneFlags:
		return views.FlagPage(pic.Flags[i], known(l.list, queue.Of[[]queue.AuditEntry](l.list.page)), e, w), true
	}
	return views.Page{}, false
}

// known tells an empty list from one that was not read yet.
func known[T any](l list, rows []T) []T {
	if l.read && rows == nil {
		return []T{}
	}
	return rows
}

func find(src views.Source, id string) int {
	for i := range src.Len {
		if src.ID(i) == id {
			return i
		}
	}
	return -1
}

func (m *root) loops() []queue.LoopStatus {
	if m.local == nil {
		return nil
	}
	return m.local.Loops
}

// settlePage builds a page anew where what it shows has changed.
func (m *root) settlePage(p *pane, l *level) {
	if l.stamp == m.stamp {
		return
	}
	if page, ok := m.page(p, l, m.env(), m.size.W); ok {
		l.built = page
	}
	l.stamp = m.stamp
	l.offset = min(max(l.offset, 0), max(len(l.built.Lines)-m.body().H, 0))
}

func (m *root) overview(p *pane) views.OverviewView {
	st := views.OverviewState{Picture: m.feed.picture}
	if p.armed || m.feed.picture != nil {
		st.Cursor = p.target
	}
	return views.Overview(st, m.env(), m.body())
}

// exactly is a term that holds for one value, whatever is in it.
func exactly(field string, kind queue.FieldKind, raw string) queue.Term {
	return queue.Term{Field: field, Kind: kind, Op: queue.OpEq, Values: []queue.Value{{Raw: raw}}}
}

// groupFilter is the filter of a group in the words of the filter language.
func groupFilter(g queue.DeadGroup) string {
	f := queue.Filter{Terms: []queue.Term{
		exactly("source", queue.FieldText, g.Source), exactly("code", queue.FieldText, g.Code.String()),
	}}
	if g.SubscriptionID != 0 {
		f.Terms = append(f.Terms, exactly("subscription", queue.FieldNumber, strconv.FormatInt(g.SubscriptionID, 10)))
	} else {
		f.Terms = append(f.Terms, exactly("endpoint", queue.FieldText, g.Endpoint.String()))
	}
	f.Terms = append(f.Terms, exactly("domain", queue.FieldText, g.Domain.String()))
	return f.String()
}
