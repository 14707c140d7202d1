package tui

import (
	"slices"
	"strconv"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
)

// executorsPane returns pane 4: executors, and below them their job
// subscriptions.
func executorsPane() pane {
	row := rowTarget(func(at scene) (string, bool) { id := executorAt(at); return id, id != "" }, func(id string) string { return id }, "there is no executor under the cursor")
	subscription := rowTarget(jobSubscriptionAt, func(x queue.JobSubscription) string { return x.ID }, "D needs a row under MAY CLAIM under the cursor")
	return pane{
		Pane: queue.Pane{
			ID: queue.PaneExecutors, Keys: "4", Title: "Executors", Short: "Exec",
			From: "queue_heartbeat, job_subscription",
			Help: "executors by state (working, idle, stuck, silent), and the jobs that each may claim; register, subscribe",
		},
		source: func(at scene) views.Source { return snapshotSource(at, views.Executors(at.snap)) },
		enter:  executorLevel,
		copyText: func(at scene) string {
			x, ok := jobSubscriptionAt(at)
			return queue.Choose(ok, x.ID, at.subject())
		},
		acts: acts{
			targets: map[queue.ActionID]target{
				queue.ActAck: acknowledge(func(at scene) (queue.Alert, bool) {
					id := executorAt(at)
					return queue.Find(at.snap.OrEmpty().Alerts, func(a queue.Alert) bool { return id != "" && a.Kind == "silence" && a.Subject.String() == id })
				}, func(at scene) string {
					if id := executorAt(at); id != "" {
						return id + " is not silent: there is nothing to acknowledge"
					}
					return at.noRow(noAlert)
				}),
				queue.ActJobSubscribe:       subscribeTarget,
				queue.ActProducerSet:        producersTarget,
				queue.ActExecDeregister:     row,
				queue.ActExecOwner:          row,
				queue.ActJobSubscriptionOff: subscription,
				queue.ActJobSubscriptionOn:  subscription,
			},
			forms: map[queue.ActionID]form{
				queue.ActJobSubscribe:       {parseWords: parseSubscribe, prefill: subscriptionPrefill, keys: []string{"kind", "domain"}, facts: executorFacts},
				queue.ActJobSubscriptionOff: {facts: jobSubscriptionFacts},
				queue.ActJobSubscriptionOn:  {facts: jobSubscriptionFacts},
			},
			usesSecond: func(at scene) bool {
				x, ok := jobSubscriptionAt(at)
				return ok && !x.Enabled
			},
		},
	}
}

// executorAt returns the id of the executor that the row under the cursor is
// about, in either table.
func executorAt(at scene) string {
	x, ok := jobSubscriptionAt(at)
	return queue.Choose(ok, x.ExecutorID.String(), at.subject())
}

// executorLevel returns the page of an executor. A row of the lower table
// opens the executor of its job subscription.
func executorLevel(at scene, i int) level {
	id := at.level.grid.src.ID(i)
	x, ok := views.SubscriptionOf(at.snap, id)
	return level{id: id, title: queue.Choose(ok, x.ExecutorID.String(), id), page: func(at scene) (views.Page, bool) {
		i, ok := at.row(id)
		if !ok {
			return views.Page{}, false
		}
		if n := len(at.snap.Executors); i >= n {
			of := at.snap.JobSubscriptions[i-n].ExecutorID
			if i = slices.IndexFunc(at.snap.Executors, func(x queue.Executor) bool { return x.ID == of }); i < 0 {
				return views.Page{}, false
			}
		}
		return views.ExecutorPage(at.snap.Executors[i], at.snap, at.env, at.size.W), true
	}}
}

// jobSubscriptionAt returns the job subscription under the cursor.
func jobSubscriptionAt(at scene) (queue.JobSubscription, bool) {
	return views.SubscriptionOf(at.snap, at.subject())
}

// producersTarget fills in the target of O (which producers may enqueue a
// kind): the job kind of the executor under the cursor.
func producersTarget(at scene, req *queue.Request) string {
	id := executorAt(at)
	x, ok := queue.Find(at.snap.OrEmpty().Executors, func(x queue.Executor) bool { return x.ID.String() == id })
	if !ok {
		return at.noRow("there is no executor under the cursor; O sets the producers of its kind")
	}
	req.Targets = []string{x.Kind.String()}
	return ""
}

// subscribeTarget fills in the form of E (change a job subscription): the job
// subscription under the cursor, else the first one of the executor under the
// cursor. If there is neither, the form stays empty.
func subscribeTarget(at scene, req *queue.Request) string {
	id := executorAt(at)
	if id == "" {
		return at.noRow("there is no executor under the cursor")
	}
	subscriptions := jobSubscriptionsOf(at.snap, id)
	if x, ok := jobSubscriptionAt(at); ok {
		subscriptions = []queue.JobSubscription{x}
	}
	req.Targets = []string{id}
	if len(subscriptions) > 0 {
		nameSubscription(req, subscriptions[0])
	}
	return ""
}

// parseSubscribe reads the arguments of the command ":executor ID [KIND]".
// Without a kind it fills in the executor's first job subscription.
func parseSubscribe(snap *queue.Snapshot, words []string, req *queue.Request) string {
	req.Targets = words[:1]
	if len(words) > 1 {
		req.Args["kind"] = words[1]
	} else if subscriptions := jobSubscriptionsOf(snap, words[0]); len(subscriptions) > 0 {
		nameSubscription(req, subscriptions[0])
	}
	return ""
}

// nameSubscription puts what names a job subscription into the arguments of a
// request.
func nameSubscription(req *queue.Request, x queue.JobSubscription) {
	req.Args["kind"], req.Args["domain"] = x.JobKind.String(), x.Domain.String()
}

// subscriptionPrefill fills in the settings of the job subscription that the
// request names, if the executor has it.
func subscriptionPrefill(snap *queue.Snapshot, req queue.Request, args []queue.Arg) {
	x, ok := queue.Find(jobSubscriptionsOf(snap, req.Targets[0]), func(x queue.JobSubscription) bool {
		return x.JobKind.String() == req.Args["kind"] && x.Domain.String() == req.Args["domain"]
	})
	if !ok {
		return
	}
	now := map[string]string{
		"floor": strconv.FormatInt(x.PriorityFloor, 10), "parallel": strconv.FormatInt(x.MaxParallel, 10),
		"enabled": strconv.FormatBool(x.Enabled), "notes": x.Notes.String(),
	}
	for i := range args {
		if v, ok := now[args[i].Name]; ok {
			args[i].Default = v
		}
	}
}

// jobSubscriptionsOf returns the job subscriptions of an executor.
func jobSubscriptionsOf(snap *queue.Snapshot, executor string) (out []queue.JobSubscription) {
	for _, x := range snap.OrEmpty().JobSubscriptions {
		if x.ExecutorID.String() == executor {
			out = append(out, x)
		}
	}
	return out
}

// jobSubscriptionFacts returns the facts about a job subscription.
func jobSubscriptionFacts(snap *queue.Snapshot, id string) []queue.PlanLine {
	x, ok := queue.Find(snap.OrEmpty().JobSubscriptions, func(x queue.JobSubscription) bool { return x.ID == id })
	if !ok {
		return nil
	}
	return []queue.PlanLine{{Label: "executor", Value: x.ExecutorID}, {Label: "may claim", Value: queue.Clean(views.JobSubscriptionText(x))}}
}

// executorFacts returns the job subscriptions that an executor has now.
func executorFacts(snap *queue.Snapshot, executor string) []queue.PlanLine {
	subscriptions := jobSubscriptionsOf(snap, executor)
	if len(subscriptions) == 0 {
		return []queue.PlanLine{{Label: "now", Value: queue.Clean("no job subscription: this executor gets no jobs")}}
	}
	var out []queue.PlanLine
	for i, x := range subscriptions {
		if i == 3 && len(subscriptions) > 4 {
			out = append(out, queue.PlanLine{Value: queue.Clean("and " + strconv.Itoa(len(subscriptions)-i) + " more")})
			break
		}
		out = append(out, queue.PlanLine{Label: queue.Choose(i == 0, "now", ""), Value: queue.Clean(views.JobSubscriptionText(x))})
	}
	return append(out, queue.PlanLine{Label: "note", Value: queue.Clean("another kind or domain adds a subscription and leaves these unchanged")})
}
