package queue

// Purpose returns what a tick worker, or the loop job_executor, does, in a few words; "" for any other name.
func Purpose(name string) string {
	return map[string]string{
		"iu_outbound_default":    "routes outbox events to their recipients and consumers",
		"staging_outbound":       "routes the events of the domain staging",
		"webhook_router":         "makes a saga per event and webhook subscription",
		"saga_orchestrator":      "settles attempts, retries, dead-letters, makes jobs",
		"webhook_worker":         "sends webhooks and records the results",
		"lease_reset_cleaner":    "returns webhook jobs whose lease expired",
		"job_executor":           "claims jobs and runs their handlers",
		"job_queue_default":      "finds jobs and retries that become due",
		"lease_reaper":           "returns jobs whose lease expired",
		"bulk_operation_runner":  "runs bulk operations at their rate",
		"iu_notification_worker": "notifies of staged pieces, one notification per document",
		"staging_cleanup_sweep":  "deletes staged rows that were notified long ago",
		"stale_heartbeat_check":  "raises an alert when an executor is silent",
		"counter_compactor":      "compacts the counters that the panes read",
		"metrics_sampler":        "records the history of the metrics once a minute",
		"config_expiry":          "reverts flag values that have expired",
		"retention_sweep":        "makes partitions and drops expired ones",
	}[name]
}
