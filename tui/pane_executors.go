package tui

import (
	"slices"
	"strconv"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
)

// executorsPane is pane 4: executors, and under them what each may claim.
func executorsPane() pane {
	rule := on(jobRule, func(x queue.JobSubscription) string { return x.ID }, "D works on a row under MAY CLAIM; there is none under the cursor")
	return pane{
		Pane: queue.Pane{
			ID: queue.PaneExecutors, Keys: "4", Title: "Executors", Short: "Exec",
			From: "queue_heartbeat, job_subscription",
			Help: "working, idle, stuck, stale, dead; register; what each may claim",
		},
		source: func(at scene) views.Source { return pictured(at, views.Executors(at.pic)) },
		enter:  executorLevel,
		copies: func(at scene) string {
			x, ok := jobRule(at)
			return queue.Choose(ok, x.ID, at.subject())
		},
		acts: acts{
			targets: map[queue.ActionID]target{
				queue.ActAck: acknowledge(func(at scene) (queue.Alert, bool) {
					id := executorAt(at)
					return queue.Find(at.pic.OrEmpty().Alerts, func(a queue.Alert) bool { return id != "" && a.Kind == "silence" && a.Subject.String() == id })
				}, func(at scene) string {
					if id := executorAt(at); id != "" {
						return id + " is not silent: there is nothing to acknowledge"
					}
					return at.noRow(noAlert)
				}),
				queue.ActJobSubscribe: mayClaim,
				queue.ActProducerSet:  producersOf,
				queue.ActJobRuleOff:   rule,
				queue.ActJobRuleOn:    rule,
			},
			forms: map[queue.ActionID]form{
				queue.ActJobSubscribe: {line: claimLine, about: claims},
				queue.ActJobRuleOff:   {about: claimNow},
				queue.ActJobRuleOn:    {about: claimNow},
			},
			second: func(at scene) bool {
				x, ok := jobRule(at)
				return ok && !x.Enabled
			},
		},
	}
}

// executorAt is the id of the executor that a row is about.
func executorAt(at scene) string {
	x, ok := jobRule(at)
	return queue.Choose(ok, x.ExecutorID.String(), at.subject())
}

// executorLevel is the page of an executor, or of the one that a subscription is of.
func executorLevel(at scene, i int) level {
	id := at.level.grid.src.ID(i)
	x, ok := views.SubscriptionOf(at.pic, id)
	return level{id: id, title: queue.Choose(ok, x.ExecutorID.String(), id), page: func(at scene) (views.Page, bool) {
		i, ok := at.row(id)
		if !ok {
			return views.Page{}, false
		}
		if n := len(at.pic.Executors); i >= n {
			of := at.pic.JobSubscriptions[i-n].ExecutorID
			if i = slices.IndexFunc(at.pic.Executors, func(x queue.Executor) bool { return x.ID == of }); i < 0 {
				return views.Page{}, false
			}
		}
		return views.ExecutorPage(at.pic.Executors[i], at.pic.JobSubscriptions, at.env, at.size.W), true
	}}
}

func jobRule(at scene) (queue.JobSubscription, bool) {
	return views.SubscriptionOf(at.pic, at.subject())
}

// producersOf starts the form of O with the kind of the executor under the cursor.
func producersOf(at scene, req *queue.Request) string {
	id := executorAt(at)
	x, ok := queue.Find(at.pic.OrEmpty().Executors, func(x queue.Executor) bool { return x.ID.String() == id })
	if !ok {
		return at.noRow("there is no executor under the cursor: O names the producers of its kind")
	}
	req.Targets = []string{x.Kind.String()}
	return ""
}

// mayClaim starts the form of E: with the rule under the cursor, else with the
// first of the executor, else empty.
func mayClaim(at scene, req *queue.Request) string {
	id := executorAt(at)
	if id == "" {
		return at.noRow("there is no executor under the cursor")
	}
	rules := claimRules(at.pic, id)
	if x, ok := jobRule(at); ok {
		rules = []queue.JobSubscription{x}
	}
	req.Targets = []string{id}
	if len(rules) > 0 {
		fill(req, rules[0])
	}
	return ""
}

// claimLine takes the second word for the kind of jobs; without it the rule that
// stands is edited.
func claimLine(pic *queue.Snapshot, words []string, req *queue.Request) string {
	req.Targets = words[:1]
	if len(words) > 1 {
		req.Args["kind"] = words[1]
	} else if rules := claimRules(pic, words[0]); len(rules) > 0 {
		fill(req, rules[0])
	}
	return ""
}

// fill lets the form of a request start with a rule.
func fill(req *queue.Request, x queue.JobSubscription) {
	req.Args["kind"], req.Args["domain"] = x.JobKind.String(), x.Domain.String()
	req.Args["floor"], req.Args["parallel"] = strconv.FormatInt(x.PriorityFloor, 10), strconv.FormatInt(x.MaxParallel, 10)
	req.Args["enabled"], req.Args["notes"] = strconv.FormatBool(x.Enabled), x.Notes.String()
}

// claimRules are what an executor may claim.
func claimRules(pic *queue.Snapshot, executor string) (out []queue.JobSubscription) {
	for _, x := range pic.OrEmpty().JobSubscriptions {
		if x.ExecutorID.String() == executor {
			out = append(out, x)
		}
	}
	return out
}

// claimNow says what a rule is of.
func claimNow(pic *queue.Snapshot, id string) []queue.PlanLine {
	x, ok := queue.Find(pic.OrEmpty().JobSubscriptions, func(x queue.JobSubscription) bool { return x.ID == id })
	if !ok {
		return nil
	}
	return []queue.PlanLine{{Label: "executor", Value: x.ExecutorID}, {Label: "may claim", Value: queue.Clean(views.Rule(x))}}
}

// claims says how an executor's rules stand, above the form that makes one.
func claims(pic *queue.Snapshot, executor string) []queue.PlanLine {
	rules := claimRules(pic, executor)
	if len(rules) == 0 {
		return []queue.PlanLine{{Label: "now", Value: queue.Clean("no subscription: it gets no job")}}
	}
	var out []queue.PlanLine
	for i, x := range rules {
		if i == 3 && len(rules) > 4 {
			out = append(out, queue.PlanLine{Value: queue.Clean("and " + strconv.Itoa(len(rules)-i) + " more")})
			break
		}
		out = append(out, queue.PlanLine{Label: queue.Choose(i == 0, "now", ""), Value: queue.Clean(views.Rule(x))})
	}
	return append(out, queue.PlanLine{Label: "to know", Value: queue.Clean("another kind or domain makes one more; it does not change these")})
}
