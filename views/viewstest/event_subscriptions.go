package viewstest

// Event subscriptions, a broadcast share over its limit, and an event type whose recipients are
// resolved step by step.

import "github.com/qtop/qtop/pgclient/queue"

// EventSubscriptions returns the event subscriptions of a new installation, one of them muted and two limited to
// a scope.
func EventSubscriptions() []queue.EventSubscription {
	n := int64(0)
	subscription := func(recipient, domain, kind, stream string) queue.EventSubscription {
		n++
		return queue.EventSubscription{ID: n, Recipient: t(recipient), Domain: t(domain), Type: t(kind), Stream: t(stream), Filter: t("{}")}
	}
	out := []queue.EventSubscription{
		subscription("role:health_owner", "system", "issue_opened", ""), subscription("role:health_owner", "system", "issue_resolved", ""), subscription("agency:sysop", "", "", "alert"),
		subscription("role:workflow_admin", "staging", "", "birth"), subscription("role:workflow_admin", "staging", "", "update"), subscription("role:dot_executor", "dot", "", ""),
		subscription("agency:integrity", "health", "", "alert"), subscription("role:kg_indexer", "kg", "", ""), subscription("role:auto_instantiator", "iu", "template.instance_auto_composed", "update"),
		subscription("user:anna", "billing", "invoice.paid", ""), subscription("agent:codex", "kg", "node.updated", "update"),
	}
	out[7].Mute = true
	out[9].SubjectTable, out[9].Filter = t("invoices"), t(`{"region": "eu", "amount": {"currency": "EUR"}}`)
	out[10].Filter = t(`{"depth": 2}`)
	return out
}

// BroadcastShare returns a share over its limit, mostly because of a domain whose event
// subscription is muted.
func BroadcastShare() queue.Broadcast {
	b := queue.Broadcast{
		On: true, Line: 5,
		Shares: []queue.BroadcastShare{
			{Events: 131_402, Broadcast: 9_210, Percent: 7.01, Over: true}, {Domain: t("kg"), Events: 8_904, Broadcast: 8_904, Percent: 100, Over: true},
			{Domain: t("billing"), Events: 21_020, Broadcast: 305, Percent: 1.45}, {Domain: t("iu"), Events: 44_000, Broadcast: 1},
			{Domain: t("system"), Events: 57_478},
		},
		Unrouted: []queue.UnroutedType{
			{Domain: t("kg"), Type: t("node.updated"), Stream: t("update"), Events: 8_100, Broadcast: 8_100}, {Domain: t("kg"), Type: t("edge.dropped"), Stream: t("update"), Events: 804, Broadcast: 804},
			{Domain: t("billing"), Type: t("invoice.paid"), Stream: t("money"), Events: 1_020, Broadcast: 305}, {Domain: t("iu"), Type: t("template.archived"), Stream: t("update"), Events: 2, Broadcast: 1},
		},
	}
	for i := range 24 {
		v := 1.2 + float64(i)/40
		switch {
		case i == 9 || i == 10: // gaps: no sample was taken in these hours
			b.Trend = append(b.Trend, nil)
			continue
		case i > 18:
			v = 2 + float64(i-18)
		}
		b.Trend = append(b.Trend, &v)
	}
	return b
}

// Resolution returns the resolution of a type that only a muted event subscription and one with
// another scope name.
func Resolution() queue.Resolution {
	all := EventSubscriptions()
	return queue.Resolution{
		Domain: t("kg"), Type: t("node.updated"), Stream: t("update"), Payload: t("{}"), Registered: true, On: true, Events: 8_100, Broadcast: 8_100,
		Subscriptions: []queue.ResolvedSubscription{{EventSubscription: all[10], StepNo: 1, Outcome: "filter"}, {EventSubscription: all[7], StepNo: 4, Outcome: "muted"}},
		Recipients:    []queue.Text{t("broadcast")},
	}
}

// ResolutionReached returns the resolution of a type that reaches two recipients, one of them by
// two steps.
func ResolutionReached() queue.Resolution {
	all := EventSubscriptions()
	return queue.Resolution{
		Domain: t("system"), Type: t("issue_opened"), Stream: t("alert"), Payload: t(`{"severity": "high"}`), SubjectTable: t("issues"), Registered: true, On: true, Events: 57_000,
		Subscriptions: []queue.ResolvedSubscription{
			{EventSubscription: all[2], StepNo: 2, Outcome: "taken"}, {EventSubscription: all[0], StepNo: 3, Outcome: "taken"}, {EventSubscription: all[2], StepNo: 4, Outcome: "better"},
		},
		Recipients: []queue.Text{t("agency:sysop"), t("role:health_owner")},
	}
}
