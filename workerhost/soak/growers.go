package main

// The names of the tables and figures that grow by design, and the reasons.

import "strings"

// growers returns the tables that keep finished work until their retention ends, with the reason
// for each.
func growers() map[string]string {
	const (
		jobs     = "a row per finished job, for retention.jobs_days"
		webhooks = "settled webhooks stay, for retention.webhooks_days (0: for ever)"
		samples  = "samples, for retention.samples_days"
	)
	return map[string]string{
		"job_history":              jobs,
		"job_root":                 jobs,
		"producer_key":             "a row per idempotency key, for retention.job_keys_days",
		"events":                   "a row per event, for retention.events_days or, with webhooks, retention.webhooks_days",
		"webhook_delivery_sagas":   webhooks,
		"webhook_delivery_jobs":    webhooks,
		"queue_metric_sample":      samples,
		"queue_past_picture":       "a snapshot per minute, for 24 hours",
		"webhook_operation_bucket": "an hour's buckets",
	}
}

// growsBecause returns the reason why a figure may grow with the amount of finished work; "" = it
// may not grow.
func growsBecause(name string) string {
	switch name {
	case "jobs done", "webhooks done":
		return "what the ledger has seen"
	case "database size":
		return "the history in it"
	case "server wal":
		return "up to max_wal_size"
	}
	table, ok := strings.CutPrefix(name, "table ")
	if !ok || strings.HasSuffix(table, " dead rows") {
		return ""
	}
	table, _, _ = strings.Cut(table, " ")
	return growers()[table]
}
