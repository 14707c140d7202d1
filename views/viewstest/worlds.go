package viewstest

// All data that the console can show (type World), in three variants: rich,
// empty, and with a hostile string in every place.

import (
	"encoding/json"
	"reflect"
	"strings"

	"github.com/qtop/qtop/pgclient/queue"
)

// World is a snapshot together with everything that the console reads on
// demand.
type World struct {
	Snapshot    queue.Snapshot
	Session     queue.Session
	Host        *queue.HostStatus
	DeadLetters []queue.DeadLetter
	Detail      queue.DeadLetterDetail
	Audit       []queue.AuditEntry
	History     []queue.AlertAck
	Jobs        []queue.Job
	Job         queue.JobDetail

	JobDeadLetters []queue.DeadLetter
	JobDeadLetter  queue.DeadLetterDetail

	EventDeadLetters []queue.DeadLetter
	EventDeadLetter  queue.DeadLetterDetail
	Revealed         queue.DeadLetterDetail

	Sessions   []queue.Activity
	Quarantine []queue.Quarantined
	Operations []queue.Operation
	Items      []queue.OperationItem

	Endpoints []queue.Endpoint
	Leases    []queue.WebhookLease
	Endpoint  queue.EndpointDetail
	Why       queue.Why
	Cron      queue.Cron

	Notifications      *queue.Notifications
	EventSubscriptions []queue.EventSubscription
	Broadcast          *queue.Broadcast
	Resolution         queue.Resolution
	Reached            queue.Resolution
}

// RichWorld returns the data of the incident.
func RichWorld() World {
	h := Host()
	n := Notifications()
	share := BroadcastShare()
	return World{
		Snapshot: Rich(), Session: Session(), Host: &h, DeadLetters: DeadLetters(40), Detail: Detail(), Audit: Audit(), History: History(),
		Jobs: Jobs(40), Job: Job(), JobDeadLetters: JobDeadLetters(12), JobDeadLetter: JobDeadLetter(),
		EventDeadLetters: EventDeadLetters(3), EventDeadLetter: EventDeadLetter(), Revealed: Revealed(),
		Sessions: Sessions(), Quarantine: Quarantine(), Operations: Operations(), Items: OperationItems(),
		Endpoints: Endpoints(), Leases: WebhookLeases(), Endpoint: EndpointPage(), Why: Why(), Cron: Cron(), Notifications: &n,
		EventSubscriptions: EventSubscriptions(), Broadcast: &share, Resolution: Resolution(), Reached: ResolutionReached(),
	}
}

// EmptyWorld returns the data of a database in which nothing has happened yet, on a machine where
// no worker host can run.
func EmptyWorld() World {
	return World{
		Snapshot: Empty(), Session: Session(), Notifications: &queue.Notifications{DebounceSeconds: 90, Threshold: 2, IntervalSeconds: 120},
		Broadcast: &queue.Broadcast{On: true, Line: 5, Shares: []queue.BroadcastShare{{}}, Trend: make([]*float64, 24)},
	}
}

// Hostile returns strings that control a terminal, deceive the reader or break widths.
func Hostile() []string {
	return []string{
		"\x1b[2J\x1b[31mred", "\x1b]52;c;aGk=\x07", "\x1b]0;title\x1b\\", "\u009b31m\u009d0;x\u009c", "a\rb\nc\td\x00e\x7f",
		"\u202egnp.exe\u202c", "a\u200b\u200d\u2060b\ufeff", "\U000e0041\U000e0042tag", "bad\xff\xfeutf8", strings.Repeat("x\u0300", 300),
		"漢字テスト全角文字列がここにあります", "👩‍👩‍👧‍👦 family", strings.Repeat("A", 5000), "\x1bP+q544e\x1b\\", "\u202e\u2066x\u2069", "\u00ad\u034f\u3164ﾠ",
	}
}

// HostileTogether returns the same content in fewer strings, so that tests
// need less time: each joins many of them, but very long ones stay alone.
func HostileTogether() []string {
	var out []string
	together := ""
	for _, s := range Hostile() {
		if len(s) > 200 {
			out = append(out, s)
			continue
		}
		together += s + " "
		if len(together) > 60 {
			out, together = append(out, together), ""
		}
	}
	return append(out, together)
}

// HostileWorld returns the rich world with bad in every string.
func HostileWorld(bad string) World {
	w := RichWorld()
	poison(reflect.ValueOf(&w).Elem(), bad)
	raw, _ := json.Marshal(bad)
	for i := range w.Audit {
		w.Audit[i].Before, w.Audit[i].After = raw, json.RawMessage(`{"value":`+string(raw)+`}`)
	}
	for i := range w.Snapshot.Alerts { // an alert with a cause is drawn only on the page of its cause
		w.Snapshot.Alerts[i].Cause = queue.Text{}
	}
	for i := range w.Snapshot.Ticks {
		w.Snapshot.Ticks[i].LastResult = json.RawMessage(`{"error":` + string(raw) + `,` + string(raw) + `:1}`)
	}
	return w
}

// poison puts bad into every Text and string inside v. It leaves every second
// string that is a state unchanged, so that known and unknown states are
// drawn.
func poison(v reflect.Value, bad string) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			poison(v.Elem(), bad)
		}
	case reflect.Slice:
		if v.Type() == reflect.TypeFor[json.RawMessage]() {
			return
		}
		for i := range v.Len() {
			poison(v.Index(i), bad)
		}
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[queue.Text]() {
			v.Set(reflect.ValueOf(queue.Clean(bad)))
			return
		}
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				poison(v.Field(i), bad)
			}
		}
	case reflect.String:
		v.SetString(bad)
	default: // numbers, times and maps stay unchanged
	}
}
