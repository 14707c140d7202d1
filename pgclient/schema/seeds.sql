-- Seeds: the rows that the code relies on. Every statement may run again on any database: existing rows keep the values
-- that operators gave them. No ON CONFLICT, which would wait for rows that running hosts have locked. rows.txt has the
-- keys of these rows: qtop doctor names those that are missing, and migrate up runs the seeds again to put them back.

-- Flags: key, kind, default, description; p_switch = false (or 0) switches a part of the queue off, which the console
-- shows first.
SELECT public.fn_dot_config_seed('queue.heartbeat.stale_threshold_seconds', 'integer', '300',
  'a tick worker is silent after this long, but not before 3 or after 5 of its intervals; default of new executors; in '
  'seconds; from 1000000 on nothing is watched',
  p_switch => false, p_choices => NULL::text[]);
SELECT public.fn_dot_config_seed('queue.environment', 'environment', 'unset',
  'the name of this environment and its guard, as in "prod-eu guarded" or "staging open"; in a guarded one every '
  'change must be confirmed by typing the name', p_switch => false, p_choices => NULL::text[]);
SELECT public.fn_dot_config_seed('queue.notify.bridge_enabled', 'boolean', 'false',
  'NOTIFY wakes listeners at once; off = all loops poll. Each commit that notifies takes a cluster-wide lock',
  p_switch => false, p_choices => NULL::text[]);
SELECT public.fn_dot_config_seed('queue.scheduler.mode', 'mode', 'external',
  'who runs the ticks: external (worker hosts), pg_cron, or hybrid (both)',
  p_choices => ARRAY['external', 'pg_cron', 'hybrid'],
  p_switch => false);
SELECT public.fn_dot_config_seed('queue.subscription_resolution.enabled', 'boolean', 'true',
  'off = every event is broadcast', p_switch => true, p_choices => NULL::text[]);
SELECT public.fn_dot_config_seed('queue.subscription_resolution.broadcast_warn_percent', 'integer', '5',
  'a share of broadcast events above this raises an alert, in percent', p_switch => false, p_choices => NULL::text[]);
SELECT public.fn_dot_config_seed('queue.job_substrate.enabled', 'boolean', 'true',
  'off = no job is claimed', p_switch => true, p_choices => NULL::text[]);
SELECT public.fn_dot_config_seed('queue.dlq.replay_enabled', 'boolean', 'true',
  'off = nothing is requeued or replayed', p_switch => true, p_choices => NULL::text[]);
SELECT public.fn_dot_config_seed('queue.lease.duration_seconds', 'integer', '300',
  'how long a job lease lasts, in seconds', p_switch => false, p_choices => NULL::text[]);
SELECT public.fn_dot_config_seed('queue.lease.reaper_enabled', 'boolean', 'true',
  'off = jobs whose lease has expired are not requeued', p_switch => true, p_choices => NULL::text[]);
SELECT public.fn_dot_config_waits('queue.retry.schedule', 'queue.retry.backoff_base_seconds', '10',
  'queue.retry.backoff_cap_seconds', '3600');
SELECT public.fn_dot_config_seed('queue.retry.schedule', 'schedule',
  '10s 20s 30s 2m 2m 5m 10m 20m 30m 50m 1h 1h 1h 2h 2h 3h 4h 4h 4h',
  'how long a job waits after each failed attempt; queue.retry.schedule.KIND for one job kind',
  p_switch => false, p_choices => NULL::text[]);
SELECT public.fn_dot_config_seed('queue.payload.max_bytes', 'integer', '262144',
  'longest accepted payload, in bytes of its text; stored payloads are not affected',
  p_switch => false, p_choices => NULL::text[]);
SELECT public.fn_dot_config_seed('queue.retry.max_attempts_default', 'integer', '20',
  'maximum attempts of a job that was enqueued without max_attempts', p_switch => false, p_choices => NULL::text[]);
SELECT public.fn_dot_config_seed('iu_core.routes_master_enabled', 'boolean', 'true',
  'off = no event is routed', p_switch => true, p_choices => NULL::text[]);
SELECT public.fn_dot_config_seed('iu_core.route_worker_enabled', 'boolean', 'true',
  'off = the event route workers do not run', p_switch => true, p_choices => NULL::text[]);
SELECT public.fn_dot_config_seed('notification.debounce_seconds', 'integer', '90',
  'how long staged notifications wait for others of their document, in seconds; clamped to 60-300',
  p_switch => false, p_choices => NULL::text[]);
SELECT public.fn_dot_config_seed('notification.batch_piece_threshold', 'integer', '2',
  'number of pieces from which notifications are grouped; clamped to 2-50',
  p_switch => false, p_choices => NULL::text[]);
SELECT public.fn_dot_config_seed('webhook.worker.enabled', 'boolean', 'true',
  'off = no webhook is routed or sent', p_switch => true, p_choices => NULL::text[]);
SELECT public.fn_dot_config_seed('webhook.max_attempts', 'integer', '10',
  'maximum attempts of a webhook whose subscription has no max_attempts', p_switch => false, p_choices => NULL::text[]);
SELECT public.fn_dot_config_waits('webhook.retry_schedule', 'webhook.backoff_base_seconds', '30',
  'webhook.backoff_cap_seconds', '3600');
SELECT public.fn_dot_config_seed('webhook.retry_schedule', 'schedule', '5s 30s 2m 10m 30m 1h 3h 10h 28h',
  'how long a webhook waits after each failed attempt; webhook.retry_schedule.ID for one subscription',
  p_switch => false, p_choices => NULL::text[]);
SELECT public.fn_dot_config_seed('webhook.retry_after_cap_seconds', 'integer', '21600',
  'the longest wait that a receiver can request with Retry-After, in seconds',
  p_switch => false, p_choices => NULL::text[]);
SELECT public.fn_dot_config_seed('webhook.lease_seconds', 'integer', '60',
  'how long a webhook job lease lasts, in seconds; at least the timeout + 10',
  p_switch => false, p_choices => NULL::text[]);
SELECT public.fn_dot_config_seed('webhook.timeout_seconds', 'integer', '30',
  'a webhook request is aborted after this, in seconds', p_switch => false, p_choices => NULL::text[]);
SELECT public.fn_dot_config_seed('webhook.circuit_failures', 'integer', '10',
  'failures in a row that open the circuit of a webhook subscription; 0 = never',
  p_switch => false, p_choices => NULL::text[]);
SELECT public.fn_dot_config_seed('webhook.circuit_open_seconds', 'integer', '30',
  'how long a newly opened circuit waits before its first probe, in seconds; doubles with each failed probe',
  p_switch => false, p_choices => NULL::text[]);
SELECT public.fn_dot_config_seed('webhook.circuit_max_seconds', 'integer', '900',
  'the longest that an open circuit waits before a probe, in seconds; also the longest wait after a 429 without '
  'Retry-After', p_switch => false, p_choices => NULL::text[]);
SELECT public.fn_dot_config_seed('webhook.slow_start.enabled', 'boolean', 'true',
  'an endpoint that was blocked gets its backlog at a rate that rises step by step; off = as fast as possible',
  p_switch => false, p_choices => NULL::text[]);
SELECT public.fn_dot_config_seed('webhook.slow_start.max_seconds', 'integer', '0',
  'a slow start ends after this at the latest, in seconds; 0 = only when the backlog is gone',
  p_switch => false, p_choices => NULL::text[]);
SELECT public.fn_dot_config_seed('webhook.disable_after_days', 'integer', '5',
  'a webhook subscription that has only failed for this long is suspended, in days; 0 = never',
  p_switch => false, p_choices => NULL::text[]);
SELECT public.fn_dot_config_seed('queue.backlog.warn_seconds', 'integer', '600',
  'work that has been due this long, or a circuit open this long, raises a warning, in seconds; 0 = never',
  p_switch => false, p_choices => NULL::text[]);
SELECT public.fn_dot_config_seed('queue.backlog.critical_seconds', 'integer', '3600',
  'work that has been due this long, or a circuit open this long, is critical, in seconds; 0 = never',
  p_switch => false, p_choices => NULL::text[]);
SELECT public.fn_dot_config_seed('retention.events_days', 'integer', '90',
  'routed events are kept this long, in days', p_switch => false, p_choices => NULL::text[]);
SELECT public.fn_dot_config_seed('retention.jobs_days', 'integer', '90',
  'finished jobs are kept this long, in days', p_switch => false, p_choices => NULL::text[]);
SELECT public.fn_dot_config_seed('retention.job_keys_days', 'integer', '7',
  'idempotency keys are kept this long after their job ended or their event was emitted, in days',
  p_switch => false, p_choices => NULL::text[]);
SELECT public.fn_dot_config_seed('retention.dead_letters_days', 'integer', '365',
  'resolved job and route dead letters are kept this long, in days', p_switch => false, p_choices => NULL::text[]);
SELECT public.fn_dot_config_seed('retention.webhooks_days', 'integer', '0',
  'settled webhook events are kept this long with all their deliveries, in days; 0 = for ever',
  p_switch => false, p_choices => NULL::text[]);
SELECT public.fn_dot_config_seed('retention.staging_days', 'integer', '15',
  'staged notifications are kept this long after they were processed, in days',
  p_switch => false, p_choices => NULL::text[]);
SELECT public.fn_dot_config_seed('retention.samples_days', 'integer', '30',
  'metric samples are kept this long, in days', p_switch => false, p_choices => NULL::text[]);

-- Tick workers: name, default interval in seconds, function, the flag that switches it off, whether DP1 gives it a cron
-- job, its event domains. Settling webhooks and resetting their leases continue while delivery is switched off: results
-- that have arrived must be settled, and expired leases must be reset.
SELECT public.fn_dot_config_seed(format('queue.tick.%s.interval_seconds', t.worker), 'integer', t.seconds::text,
    format('how often the %s tick runs, in seconds; 0 = off', t.worker) || CASE t.worker
      WHEN 'webhook_worker' THEN ', and hosts send no webhooks' ELSE '' END,
    p_switch => true, p_choices => NULL::text[]),
  public.fn_queue_tick_worker_add(t.worker, t.function, t.flag, t.cron_job, t.domains::text[])
FROM (VALUES
  ('stale_heartbeat_check', 120, 'fn_queue_stale_check', NULL::text, true, '{}'),
  ('counter_compactor', 1, 'fn_queue_counter_compact', NULL, false, '{}'),
  ('config_expiry', 30, 'fn_dot_config_expire', NULL, false, '{}'),
  ('webhook_router', 5, 'fn_webhook_router_run', 'webhook.worker.enabled', false, '{}'),
  ('saga_orchestrator', 5, 'fn_saga_orchestrator_run', NULL, false, '{}'),
  ('webhook_worker', 1, 'fn_webhook_worker_tick', 'webhook.worker.enabled', false, '{}'),
  ('lease_reset_cleaner', 30, 'fn_lease_reset_cleaner_run', NULL, false, '{}'),
  ('job_queue_default', 30, 'fn_job_tick', 'queue.job_substrate.enabled', true, '{}'),
  ('lease_reaper', 60, 'fn_job_reap_expired', 'queue.lease.reaper_enabled', true, '{}'),
  ('bulk_operation_runner', 1, 'fn_queue_bulk_tick', NULL, false, '{}'),
  ('metrics_sampler', 60, 'fn_metrics_sampler_run', NULL, false, '{}'),
  ('retention_sweep', 3600, 'fn_queue_retention_sweep', NULL, false, '{}'),
  ('iu_notification_worker', 120, 'fn_iu_notification_worker_tick', NULL, true, '{iu}'),
  ('staging_cleanup_sweep', 3600, 'fn_staging_cleanup_sweep', NULL, true, '{staging}'),
  ('iu_outbound_default', 60, 'fn_iu_route_worker_run', 'iu_core.route_worker_enabled', true, '{iu}'),
  ('staging_outbound', 60, 'fn_iu_staging_route_worker_run', 'iu_core.route_worker_enabled', false,
    '{staging}')) AS t (worker, seconds, function, flag, cron_job, domains);

-- The bounds of every numeric flag. 0 is allowed if a document defines it: an interval of 0 is off, retention of 0 days
-- keeps rows for ever, a circuit with 0 failures never opens; a stale threshold of 1000000 or more watches nothing.
-- Notification numbers are clamped where they are used (P3D4C1).
UPDATE public.dot_config_rule r SET lowest = b.lowest, highest = b.highest
FROM public.dot_config_rule k
LEFT JOIN (VALUES
  ('queue.heartbeat.stale_threshold_seconds', 1, 999999999),
  ('queue.subscription_resolution.broadcast_warn_percent', 0, 100),
  ('queue.lease.duration_seconds', 1, 86400),
  ('queue.payload.max_bytes', 16384, 999999999),
  ('queue.retry.max_attempts_default', 1, 1000),
  ('notification.debounce_seconds', 0, 86400),
  ('notification.batch_piece_threshold', 0, 100000),
  ('webhook.max_attempts', 1, 1000),
  ('webhook.retry_after_cap_seconds', 0, 604800),
  ('webhook.lease_seconds', 11, 3600),
  ('webhook.timeout_seconds', 1, 600),
  ('webhook.circuit_failures', 0, 100000),
  ('webhook.circuit_open_seconds', 0, 86400),
  ('webhook.circuit_max_seconds', 0, 86400),
  ('webhook.slow_start.max_seconds', 0, 604800),
  ('webhook.disable_after_days', 0, 36500),
  ('queue.backlog.warn_seconds', 0, 31536000),
  ('queue.backlog.critical_seconds', 0, 31536000),
  ('retention.events_days', 0, 36500),
  ('retention.jobs_days', 0, 36500),
  ('retention.job_keys_days', 0, 36500),
  ('retention.dead_letters_days', 0, 36500),
  ('retention.staging_days', 0, 36500),
  ('retention.webhooks_days', 0, 36500),
  ('retention.samples_days', 0, 36500)) AS own (key, lowest, highest) USING (key)
CROSS JOIN LATERAL (SELECT
  CASE WHEN k.kind = 'integer' THEN COALESCE(own.lowest, 0) END AS lowest,
  -- tick intervals: at most a day
  CASE WHEN k.kind = 'integer' THEN COALESCE(own.highest, 86400) END AS highest) b
WHERE r.key = k.key AND (r.lowest, r.highest) IS DISTINCT FROM (b.lowest, b.highest);

-- The pg_cron jobs of DP1 §4.3 and P3D4C1, each the tick of one worker.
INSERT INTO public.queue_cron_job (job_name, worker_name, schedule)
SELECT * FROM (VALUES
  ('queue_iu_outbound_default', 'iu_outbound_default', '* * * * *'),
  ('queue_job_queue_default', 'job_queue_default', '* * * * *'),
  ('queue_stale_heartbeat_check', 'stale_heartbeat_check', '*/2 * * * *'),
  ('queue_staging_cleanup_sweep', 'staging_cleanup_sweep', '0 * * * *'),
  ('queue_lease_reaper', 'lease_reaper', '* * * * *'),
  ('iu-notification-worker', 'iu_notification_worker', '*/2 * * * *')) AS jobs (job_name, worker_name, schedule)
WHERE NOT EXISTS (SELECT FROM public.queue_cron_job q WHERE q.job_name = jobs.job_name);

-- Lease rows of the activities that only one session may run at a time, besides the tick workers; without that of the
-- clock, which its first use inserts.
INSERT INTO public.dot_iu_runtime_lease (lease_name)
SELECT * FROM (VALUES ('consumer_registry'), ('cron_jobs'), ('event_type_registry'), ('executor_producer'),
  ('job_watermark'), ('partitions'), ('queue_mark'), ('queue_snapshot'), ('recount'), ('subscriptions'))
  AS leases (lease_name)
WHERE NOT EXISTS (SELECT FROM public.dot_iu_runtime_lease l WHERE l.lease_name = leases.lease_name);

INSERT INTO public.event_type_registry
  (event_domain, event_type, event_stream, delivery_lane, worker_name, description)
SELECT * FROM (VALUES
  ('system', 'queue_worker_silent', 'alert', 'immediate', 'iu_outbound_default',
    'an executor has been silent beyond its threshold (DP4 §3.5)'),
  ('system', 'subscription_broadcast_high', 'alert', 'immediate', 'iu_outbound_default',
    'too many events match no event subscription (DP6 §3.2)')) AS types (event_domain, event_type)
WHERE NOT EXISTS (SELECT FROM public.event_type_registry r
  WHERE (r.event_domain, r.event_type) = (types.event_domain, types.event_type));
SELECT public.fn_iu_outbound_route_add(ARRAY(SELECT r.event_domain FROM public.event_type_registry r));

-- The event subscriptions of DP6 and the three that were in use before it; only for a new installation, which has no
-- row of its code yet: operators may delete them.
INSERT INTO public.event_subscription (recipient_ref, event_domain, event_type, event_stream)
SELECT * FROM (VALUES
  ('role:health_owner', 'system', 'issue_opened', NULL),
  ('role:health_owner', 'system', 'issue_resolved', NULL),
  ('agency:sysop', NULL, NULL, 'alert'),
  ('role:workflow_admin', 'staging', NULL, 'birth'),
  ('role:workflow_admin', 'staging', NULL, 'update'),
  ('role:dot_executor', 'dot', NULL, NULL),
  ('agency:integrity', 'health', NULL, 'alert'),
  ('role:kg_indexer', 'kg', NULL, NULL),
  ('role:auto_instantiator', 'iu', 'template.instance_auto_composed', 'update')) AS defaults
WHERE NOT EXISTS (SELECT FROM public.event_subscription) AND NOT EXISTS (SELECT FROM public.qtop_schema_code);

INSERT INTO public.queue_partitioned (parent, time_column, step, ahead)
SELECT * FROM (VALUES
  ('event_outbox', 'created_at', 'month', interval '6 months'),
  ('job_history', 'finished_at', 'day', '35 days'),
  ('queue_metric_sample', 'at', 'day', '35 days')) AS tables (parent)
WHERE NOT EXISTS (SELECT FROM public.queue_partitioned p WHERE p.parent = tables.parent);

-- Start positions of the webhook router and of the event classes. A row that is put back says nothing about the events
-- that exist: as after fn_routing_restart, the router reads all of them by id, and makes only the sagas of those that
-- its cursor does not cover, if the cursor is of this database; the classes are counted again.
INSERT INTO public.router_offsets (system_identifier, max_event_id)
SELECT CASE WHEN e.last > 0 THEN 0 ELSE s.system_identifier END, CASE WHEN EXISTS (SELECT FROM public.queue_cursor c
  WHERE c.worker_name = 'webhook_router' AND c.origin = public.fn_routing_origin()) THEN e.last ELSE 0 END
FROM pg_catalog.pg_control_system() s, (SELECT COALESCE(max(v.id), 0) AS last FROM public.events v) e
WHERE NOT EXISTS (SELECT FROM public.router_offsets);

INSERT INTO public.event_class_state (system_identifier)
SELECT CASE WHEN EXISTS (SELECT FROM public.event_class_count) THEN 0 ELSE s.system_identifier END
FROM pg_catalog.pg_control_system() s
WHERE NOT EXISTS (SELECT FROM public.event_class_state);
