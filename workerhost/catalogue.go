package workerhost

// This file lists the loops a host can run. Each is named like the tick worker
// it drives; job_executor drives none.

// The loops that hand work to each other inside one process.
const (
	loopRoutes       = "iu_outbound_default"
	loopStaging      = "staging_outbound"
	loopRouter       = "webhook_router"
	loopOrchestrator = "saga_orchestrator"
	loopWebhook      = "webhook_worker"
	loopJobs         = "job_executor"
	loopDue          = "job_queue_default"
	loopReaper       = "lease_reaper"
	loopBulk         = "bulk_operation_runner"
)

type worker struct{ name, what string }

func catalogue() []worker {
	return []worker{
		{loopRoutes, "routes events of the outbox to their recipients and consumers"},
		{loopStaging, "routes the events of the domain staging"},
		{loopRouter, "makes a saga per webhook event and subscription"},
		{loopOrchestrator, "settles attempts, retries, dead-letters, makes jobs"},
		{loopWebhook, "sends webhooks and reports what came back"},
		{"lease_reset_cleaner", "takes expired webhook leases back"},
		{loopJobs, "claims jobs and runs their handlers"},
		{loopDue, "finds jobs and retries that fall due"},
		{loopReaper, "takes expired job leases back"},
		{loopBulk, "carries bulk operations out, at their rate"},
		{"iu_notification_worker", "tells staged pieces, a document as one notification"},
		{"staging_cleanup_sweep", "deletes staged rows that were told long ago"},
		{"stale_heartbeat_check", "raises the alert when an executor is silent"},
		{"counter_compactor", "folds the counters that the panes read"},
		{"metrics_sampler", "keeps once a minute what an incident is told by"},
		{"config_expiry", "takes expired flag values back"},
		{"retention_sweep", "makes partitions, drops what is old enough"},
	}
}

// LoopNames lists all loops.
func LoopNames() []string {
	var names []string
	for _, w := range catalogue() {
		names = append(names, w.name)
	}
	return names
}
