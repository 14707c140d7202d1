package main

import "slices"

// jsonVerb is a command line whose answer has every key that the verb can give.
type jsonVerb struct {
	verb string
	args []string
	code int // exit code of the process
}

// grouping are the verbs that only hold other verbs.
var grouping = []string{"config", "consumer", "endpoint", "environment", "event-type", "executor", "flag", "job", "lease", "route", "session", "subscription", "webhook"}

// never are the lists that stay empty in every answer of this test, with the
// reason.
var never = []string{
	// Plain values, which have no keys.
	"activity[].blocked_by", "activity[].blocks", "activity[].tables", "alerts[].event_ids", "status.alerts[].event_ids", "status.silent[].event_ids",
	"hosts[].last_loops", "migrate status.pending", "version.database.pending", "why.waits",
	// Always empty: these verbs have no preview.
	"executor beat.plan", "job enqueue.plan",
	// Actions that are refused here. The keys of plan and results are the same
	// for every action.
	"adopt.plan", "adopt.results", "ops undo.results", "scheduler install.plan", "scheduler install.results", "webhook rotate-secret.plan",
	"webhook rotate-secret.results",
	// Needs a minute of time, or other settings of this process.
	"status.held", "status.not_ticked", "config check.warnings",
}

// fill records for every list in v, by its path, whether an answer has an
// element in it: an empty list does not show its keys.
func fill(v any, path string, lists map[string]bool) {
	switch v := v.(type) {
	case map[string]any:
		for k, member := range v {
			if !slices.Contains(stored, k) {
				fill(member, path+"."+k, lists)
			}
		}
	case []any:
		lists[path] = lists[path] || len(v) > 0
		for _, member := range v {
			fill(member, path+"[]", lists)
		}
	}
}

// nulls records by its path whatever is null in v.
func nulls(v any, path string, absent map[string]bool) {
	switch v := v.(type) {
	case map[string]any:
		for k, member := range v {
			if !slices.Contains(stored, k) {
				nulls(member, path+"."+k, absent)
			}
		}
	case []any:
		for _, member := range v {
			nulls(member, path+"[]", absent)
		}
	case nil:
		absent[path] = true
	}
}

// answering returns command lines of all verbs except those that keep running,
// print a script or remove the schema. Verbs that only read come first, because
// the others change the data.
func answering(f furnished) []jsonVerb {
	act := func(verb string, args ...string) jsonVerb {
		return jsonVerb{verb: verb, args: append(args, "--reason", "r", "--yes")}
	}
	refused := func(verb string, args ...string) jsonVerb {
		return jsonVerb{verb: verb, args: append(args, "--reason", "r", "--yes"), code: 1}
	}
	look := func(verb string, args ...string) jsonVerb { return jsonVerb{verb: verb, args: args} }
	return []jsonVerb{
		look("activity"), look("alerts"), look("audit"), look("config check"), look("config show"), look("consumer list"),
		look("dlq"), look("dlq-groups"), look("dlq show", f.open), look("dlq show", f.jobDeadLetter), {verb: "doctor", code: 1},
		look("event-type list"), look("executor producers"), look("executor subscriptions"), look("executors"),
		look("flags"), look("health"), look("help"), look("hosts"), look("job show", f.job), look("lease list"),
		look("migrate status"), look("notifications"), look("ops"), look("ops show", "1"), look("quarantine"), look("queues"),
		look("queues", "--kind", "kg.reindex"), look("route list"), look("scheduler"),
		look("scheduler status"), {verb: "status", code: 3}, look("subscriptions"), look("subscriptions", "--share"),
		look("subscriptions", "--resolve", "kg/node.changed"), look("version"), look("webhooks"), look("webhooks", "1"), look("why"),
		look("why", "job kg.reindex"), look("why", "iu_outbound_default"), look("export", "dlq"),

		act("ack", "mailer", "--comment", "c"), look("report", "--since", "120h"), act("unack", "mailer", "--comment", "c"),
		act("consumer set", "reindex", "--kind", "kg.index"), act("consumer disable", "reindex"),
		act("endpoint suspend", "1"), act("endpoint resume", "1"), act("environment set", "test", "--guard", "open"),
		act("event-type set", "kg/node.changed", "--description", "e"),
		act("executor register", "second", "--owner-role", "dot_executor"), look("executor beat", "second"),
		act("executor owner", "second", "--owner-role", "dot_executor"), act("executor deregister", "second"),
		act("executor subscribe", "undertaker", "--kind", "kg.reindex"), act("executor disable", f.jobSubscription), act("executor enable", f.jobSubscription),
		act("executor producer", "Agent", "--role", "event_ingest_writer", "--allowed", "false"),
		act("flag set", "queue.backlog.warn_seconds", "800"), act("job cancel", f.job),
		look("job enqueue", "--kind", "kg.reindex", "--domain", "kg", "--executor", "Agent"), act("lease release", f.lease),
		act("mark", "second"), act("notifications requeue", "--all"),
		act("erase", f.event), act("requeue", f.open), act("undo", f.open), act("ops rate", "1", "--rate", "5"), act("ops run", "1"), act("tick", "bulk_operation_runner"), look("ops show", "1"), act("ops pause", "1"), act("ops resume", "1"),
		refused("ops undo", "1"), act("ops abort", "1"),
		act("ops plan", f.open), act("quarantine retry", f.quarantine), act("recount"),
		act("resolve", f.jobDeadLetter), act("reopen", f.jobDeadLetter), refused("reopen", f.requeued),
		act("route set", "kg", "--enabled", "false"), act("scheduler pause", "metrics_sampler"), act("scheduler resume", "metrics_sampler"),
		refused("scheduler install"), act("scheduler remove"), refused("session cancel", f.session), act("session terminate", f.session),
		act("subscription add", "role:search_indexer", "--domain", "kg"), act("subscription mute", "3"), act("subscription unmute", "3"),
		act("tick", "counter_compactor"),
		act("webhook add", "https://b.example/hook", "--types", "b.made", "--unsigned"), act("webhook disable", "1"), act("webhook enable", "1"),
		act("webhook limit", "1", "--per-second", "5"),
		refused("webhook rotate-secret", "1", "--secret", "acme"), refused("webhook verify", "1"), refused("adopt", "--waiting", "keep"),
	}
}
