package queue

import (
	"strings"
	"time"
)

// Why is the result of fn_queue_why: why a queue waits, as the ordered chain of everything that can
// block it.
type Why struct {
	Queue        Text       `json:"queue"`
	Source       string     `json:"source"` // webhook, job, events
	Waiting      int64      `json:"waiting"`
	WaitingBound bool       `json:"waiting_bound"` // true: Waiting or more
	OldestAt     *time.Time `json:"oldest_at"`
	AgeSeconds   int64      `json:"age_seconds"`
	Why          Text       `json:"why"`      // the first link that blocks; without one, the first that slows; empty = nothing delays the queue
	Code         string     `json:"why_code"` // the link whose text Why is, as WhyCode names it
	Links        []WhyLink  `json:"links"`
}

// Decide sets Code by the links: the first that blocks, without one the first that slows.
func (y *Why) Decide() {
	y.Code = ""
	if y.Why.Empty() {
		return
	}
	for _, state := range []string{"blocks", "slows"} {
		if l, ok := Find(y.Links, func(l WhyLink) bool { return l.State == state }); ok {
			y.Code = strings.ReplaceAll(l.Link, " ", "_")
			return
		}
	}
}

// WhyCode returns a word for a reason why work waits, which stays the same when the text of the
// reason changes: the name of the link of fn_queue_why that has this text, with underscores. It is ""
// for the empty text, and "other" for an unknown one.
func WhyCode(why string) string {
	if why == "" {
		return ""
	}
	for _, c := range []struct{ words, code string }{
		{"every subscribed executor is ", "silence"}, {"parallel limit reached", "parallel"}, {"priority floor ", "floor"},
		{"executor subscribes to it", "executor"}, {" executors are silent", "silence"}, {" executors have stopped", "silence"},
		{"no live host has a handler", "handler"}, {" executors have no handler", "handler"},
		{"no live host can sign", "signing"}, {"not every live host can sign", "signing"}, {"no live host runs ", "host"},
		{"endpoint suspended", "suspension"}, {" subscriptions are suspended", "suspension"}, {"circuit open", "circuit"}, {"circuit half open", "circuit"},
		{" circuits are open", "circuit"}, {"no subscription of the endpoint may send", "gates"}, {" subscriptions are inactive or unverified", "subscription"},
		{"subscription inactive", "subscription"}, {"subscription unverified", "subscription"},
		{"due later", "due"}, {"never due", "due"}, {"does not run: jobs that become due", "due"}, {"job_queue_default.interval_seconds is ", "due"}, {"rate limit ", "rate"}, {"slow start: ", "slow_start"},
		{"the route of ", "route"}, {"held by an open transaction", "held"}, {".interval_seconds is ", "schedule"}, {" is paused", "operation"},
		{" is silent", "silence"}, {" is off", "flag"},
		// texts of older databases
		{"none of its subscriptions is open", "gates"}, {" subscriptions are not in use", "subscription"}, {"does not run: what is due", "due"},
	} {
		if strings.Contains(why, c.words) {
			return c.code
		}
	}
	return "other"
}

// WhyLink is one link of the chain. The links are in the order in which they can block work.
type WhyLink struct {
	Link   string `json:"link"`  // flag, route, schedule, subscription, suspension, circuit, gates, executor, silence, handler, parallel, floor, due, held, host, rate
	State  string `json:"state"` // blocks (no work moves until it is fixed), slows (some work waits), clear
	Text   Text   `json:"text"`
	Detail Text   `json:"detail"` // more about the condition; may be empty
	Keys   string `json:"keys"`   // the keys that lead to the remedy in the console, such as "7 D"; empty = not in the console
	Do     Text   `json:"do"`     // the remedy as a command line or in words
}
