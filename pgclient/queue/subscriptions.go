package queue

import "strings"

// EventSubscription says which events a recipient reads. An empty domain, type, stream or subject
// table means any.
type EventSubscription struct {
	ID           int64 `json:"subscription_id"`
	Recipient    Text  `json:"recipient_ref"`
	Domain       Text  `json:"event_domain"`
	Type         Text  `json:"event_type"`
	Stream       Text  `json:"event_stream"`
	SubjectTable Text  `json:"scope_subject_table"`
	Filter       Text  `json:"scope_filter"` // a JSON object that the payload must contain; {} = every payload
	Mute         bool  `json:"mute"`         // the event subscription counts as absent
}

// Step returns the step of source document DP6 §3.2 in which the router considers this event
// subscription.
func (s EventSubscription) Step() int {
	switch {
	case !s.Type.Empty() && !s.Stream.Empty():
		return 1
	case !s.Stream.Empty():
		return 2
	case !s.Type.Empty():
		return 3
	}
	return 4
}

// Field returns the value of a field that a filter of event subscriptions names; false if there is
// no value.
func (s EventSubscription) Field(name string) (any, bool) {
	switch name {
	case "id":
		return float64(s.ID), true
	case "recipient":
		return s.Recipient.String(), true
	case "domain":
		return s.Domain.String(), true
	case "type":
		return s.Type.String(), true
	case "stream":
		return s.Stream.String(), true
	case "scope":
		return strings.TrimSpace(s.SubjectTable.String() + " " + s.Filter.String()), true
	case "state":
		if s.Mute {
			return "muted", true
		}
		return "active", true
	}
	return nil, false
}

// EventSubscriptionFields returns the fields that a filter of event subscriptions may name.
func EventSubscriptionFields() []Field {
	return []Field{
		{Name: "id", Kind: FieldNumber, Help: "the number of the event subscription"},
		{Name: "recipient", Kind: FieldText, Help: "role:…, agency:…, user:… or agent:…"},
		{Name: "domain", Kind: FieldText, Help: "event domain; empty = every domain"},
		{Name: "type", Kind: FieldText, Help: "event type; empty = every type"},
		{Name: "stream", Kind: FieldText, Help: "event stream; empty = every stream"},
		{Name: "scope", Kind: FieldText, Help: "subject table and payload filter"},
		{Name: "state", Kind: FieldText, Help: "active or muted"},
	}
}

// BroadcastShare is the share of a domain's events that no event subscription names.
type BroadcastShare struct {
	Domain    Text    `json:"event_domain"`         // empty: all domains together
	Events    int64   `json:"events_24h"`           // events of the last 24 hours
	Broadcast int64   `json:"broadcast_events_24h"` // those that no event subscription matches
	Percent   float64 `json:"broadcast_percent"`
	Over      bool    `json:"over_line"` // Percent is above Broadcast.Line
}

// UnroutedType is an event type of which some events are named by no event subscription.
type UnroutedType struct {
	Domain    Text  `json:"event_domain"`
	Type      Text  `json:"event_type"`
	Stream    Text  `json:"event_stream"` // as registered
	Events    int64 `json:"events_24h"`
	Broadcast int64 `json:"broadcast_events_24h"`
}

// Field returns the value of a field that a filter of event subscriptions names; false if an event
// type has no such value.
func (u UnroutedType) Field(name string) (any, bool) {
	switch name {
	case "domain":
		return u.Domain, true
	case "type":
		return u.Type, true
	case "stream":
		return u.Stream, true
	}
	return nil, false
}

// ID returns the event type in the form that ListResolution takes.
func (u UnroutedType) ID() string { return u.Domain.String() + "/" + u.Type.String() }

// Broadcast is the exact broadcast share of the last 24 hours, and its history.
type Broadcast struct {
	On       bool             `json:"resolution_enabled"` // queue.subscription_resolution.enabled; off = every event is broadcast
	Line     int64            `json:"warn_percent"`       // the threshold in percent: queue.subscription_resolution.broadcast_warn_percent
	Shares   []BroadcastShare `json:"shares"`             // the total first, then the largest shares
	Unrouted []UnroutedType   `json:"unrouted"`           // the type with the most broadcast events first
	Trend    []*float64       `json:"percent_trend"`      // one sample per hour of the last 24, oldest first; null = not sampled
}

// Resolution says, step by step, who receives an event of a type.
type Resolution struct {
	Domain        Text                   `json:"event_domain"`
	Type          Text                   `json:"event_type"`
	Stream        Text                   `json:"event_stream"`
	SubjectTable  Text                   `json:"subject_table"`
	Payload       Text                   `json:"payload"`
	Registered    bool                   `json:"registered"` // the event type is in the registry
	On            bool                   `json:"resolution_enabled"`
	Events        int64                  `json:"events_24h"`           // events of this type in the last 24 hours, in all streams
	Broadcast     int64                  `json:"broadcast_events_24h"` // those of them that were broadcast
	Subscriptions []ResolvedSubscription `json:"rules"`                // event subscriptions that name the event, by step
	Recipients    []Text                 `json:"recipients"`
}

// ResolvedSubscription is an event subscription and its outcome: taken; better (an earlier step reaches its
// recipient already); muted; subject_table or filter (does not apply to this event); off.
type ResolvedSubscription struct {
	EventSubscription
	StepNo  int    `json:"step"` // 1 to 4, of DP6 §3.2; the lowest one reaches a recipient
	Outcome string `json:"outcome"`
}
