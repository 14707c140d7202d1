package queue

import "time"

// Why is the result of fn_queue_why: why a queue waits, as the ordered chain of everything that can
// block it.
type Why struct {
	Queue        Text       `json:"queue"`
	Source       string     `json:"source"` // webhook, job, events
	Waiting      int64      `json:"waiting"`
	WaitingBound bool       `json:"waiting_bound"` // true: Waiting or more
	OldestAt     *time.Time `json:"oldest_at"`
	AgeSeconds   int64      `json:"age_seconds"`
	Why          Text       `json:"why"` // the first link that blocks; without one, the first that slows; empty = nothing delays the queue
	Links        []WhyLink  `json:"links"`
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
