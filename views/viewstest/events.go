package viewstest

// Dead letters of events that could not be routed, and a payload that was revealed.

import (
	"time"

	"github.com/qtop/qtop/pgclient/queue"
)

// EventDeadLetters returns one page of dead letters of events.
func EventDeadLetters(n int) []queue.DeadLetter {
	out := make([]queue.DeadLetter, n)
	for i := range out {
		out[i] = queue.DeadLetter{
			ID: queue.EventDeadLetterID(jobID(600 + i)), Source: "event", State: "open", Code: t("ROUTE_22P02"), Endpoint: t("template.made"),
			EventType: t("template.made"), Domain: t("iu"), FailedAt: ago(time.Duration(4+i*11) * time.Minute), AgeSeconds: int64(240 + i*660),
		}
	}
	return out
}

// EventDeadLetter returns one dead letter of an event with all its details.
func EventDeadLetter() queue.DeadLetterDetail {
	return queue.DeadLetterDetail{
		DeadLetter: EventDeadLetters(1)[0], RoutedID: jobID(700), Worker: t("iu_outbound_default"),
		LastError: t("invalid input syntax for type json, token=•••"),
		Lineage: []queue.LineageStep{
			{Kind: "event", ID: t(jobID(700)), Status: "template.made", At: ptr(ago(5 * time.Minute)), By: t("importer")},
			{Kind: "attempt", ID: t("role:auto_instantiator"), Status: "step 1", At: ptr(ago(4 * time.Minute)), By: t("iu_outbound_default")},
			{Kind: "dead_letter", ID: t(queue.EventDeadLetterID(jobID(600))), Status: "ROUTE_22P02", At: ptr(ago(4 * time.Minute)), By: t("iu_outbound_default"), Current: true},
		},
		Payload: t(`{"id": "x", "event_type": "template.made", "safe_payload": {"n": 12345678901234567890.10}}`),
	}
}

// Revealed returns a dead letter whose payload is shown unmasked, cut to the length that a screen
// shows.
func Revealed() queue.DeadLetterDetail {
	d := Detail()
	d.Attempts, d.Lineage, d.LineageLeft = nil, nil, 0
	d.Payload, d.PayloadSize, d.Revealed = t(`{"id": "evt_551200", "api_key": "not-a-real-key", "amount": 12345678901234567890.10, "rows": [[], {}, [1, "a b", {"c": "d`), 5_288_927, 23
	return d
}
