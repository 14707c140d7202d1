-- Rows in every table, as in a database in use, made by the functions of the release. A statement after
-- "until CONDITION" is repeated until the condition is true: routers wait for open transactions of other tests.
SET search_path = public;

-- Webhooks: delivered, waiting, leased, dead, requeued, resolved, suspended.
INSERT INTO subscriptions (event_type, callback_url, active, verified, rate_limit_per_second)
VALUES ('order.paid', 'https://receiver.example/hook', true, true, 1000),
  ('order.lost', 'https://dead.example/hook', true, true, NULL),
  ('order.held', 'https://held.example/hook', true, true, NULL);
SELECT fn_dot_config_set('webhook.max_attempts', '1', 'ann', 'fixture');
INSERT INTO events (event_type, payload) SELECT t, jsonb_build_object('n', n, 'api_key', 'hush')
FROM unnest(ARRAY['order.paid', 'order.lost', 'order.held']) t, generate_series(1, 4) n;
-- until (SELECT count(*) FROM webhook_delivery_jobs) = 12
SELECT fn_webhook_router_run(100), fn_saga_orchestrator_run(100);
SELECT fn_webhook_job_report((SELECT jsonb_agg(jsonb_build_object('job_id', c.job_id, 'lease_token', c.lease_token)
  || CASE WHEN s.event_type = 'order.paid' THEN '{"delivered": true, "status": 200}'::jsonb ELSE '{"delivered": false, "code": "HTTP_503"}' END)
  FROM fn_webhook_job_claim('fixture', 9) c JOIN webhook_delivery_sagas g ON g.id = c.saga_id JOIN subscriptions s ON s.id = g.subscription_id));
SELECT fn_webhook_job_claim('fixture', 1);
SELECT fn_saga_orchestrator_run(100);
SELECT fn_dead_letter_requeue(ARRAY[(SELECT min(id) FROM dead_letters)], 'ann', 'fixture');
SELECT fn_dead_letter_resolve(ARRAY[(SELECT max(id) FROM dead_letters)], 'abandoned', 'ann', 'fixture');
SELECT fn_endpoint_suspend(3, 'ann', 'fixture', '1 day');
INSERT INTO events (event_type, payload) VALUES ('order.paid', '{"late": true}');

-- Executors, alerts, hosts, ticks.
SELECT fn_queue_heartbeat_register('indexer', 'Agent', '{kg}', 60, 300, 'ann');
SELECT fn_queue_heartbeat_write('indexer', '{"state": "working", "in_flight": 1}', 'indexer');
SELECT fn_queue_heartbeat_register('silent', 'Hermes', '{iu}', 60, 300, 'ann');
UPDATE queue_heartbeat SET last_beat_at = now() - interval '4 days' WHERE executor_id = 'silent';
SELECT fn_queue_stale_check();
SELECT fn_queue_alert_ack('silent', 'ann', 'fixture', '1 day');
SELECT fn_queue_host_register('gone', gen_random_uuid(), 'v0', '{}');
UPDATE queue_host SET last_seen_at = now() - interval '1 hour';
SELECT fn_queue_tick_request('config_expiry', 'operator');

-- Jobs: queued, due later, leased, done, failed, dead, replayed, cancelled.
SELECT fn_job_subscription_set(p_executor_id => 'indexer', p_job_kind => NULL, p_event_domain => NULL, p_priority_floor => 0,
  p_max_parallel => 100, p_enabled => true, p_notes => 'fixture', p_actor => 'ann', p_reason => 'fixture');
INSERT INTO executor_producer VALUES ('Codex', 'workflow_admin');
SELECT fn_job_enqueue('kg.index', 'kg', 'Agent', jsonb_build_object('n', n), p_max_attempts => 1) FROM generate_series(1, 9) n;
SELECT fn_job_enqueue('kg.later', 'kg', 'Agent', '{}', p_process_after => now() + interval '1 day', p_idempotency_key => 'once');
SELECT fn_job_fail(ARRAY[c.job_id], ARRAY[c.lease_token], '{TIMEOUT}', '{late}', '{false}') FROM fn_job_claim('indexer', NULL, 2) c;
SELECT fn_job_ack(ARRAY[c.job_id], ARRAY[c.lease_token]) FROM fn_job_claim('indexer', NULL, 2) c;
SELECT fn_job_claim('indexer', NULL, 1);
SELECT fn_job_cancel(ARRAY[(SELECT job_id FROM job_queue WHERE job_kind = 'kg.later')], 'ann', 'fixture');
SELECT fn_job_dead_letter_replay(ARRAY[(SELECT dead_letter_id FROM job_dead_letter LIMIT 1)], 'ann', 'fixture');
SELECT fn_queue_bulk_plan('replay_job', ARRAY(SELECT 'job:' || dead_letter_id FROM job_dead_letter WHERE resolved_at IS NULL), 'code:TIMEOUT', 1, 20, 0, 'ann', 'fixture');

-- Events: routed, not routed, read; event subscriptions, consumers, classes.
INSERT INTO event_type_registry (event_domain, event_type, event_stream, delivery_lane) VALUES ('kg', 'made', 'birth', 'delayed');
INSERT INTO consumer_registry (consumer_id, event_domain, event_type, job_kind, executor, enabled, registered_by, updated_by)
VALUES ('index', 'kg', 'made', 'kg.index', 'Agent', true, 'ann', 'ann');
SELECT fn_iu_emit_event('kg', 'made', 'birth', 'delayed', 'info', 'unit', n::text) FROM generate_series(1, 5) n;
-- until (SELECT count(DISTINCT event_id) FROM iu_route_attempt) >= 5
SELECT fn_iu_route_worker_run();
SELECT fn_event_classes_roll();
INSERT INTO event_class (class_key, event_domain, event_type, event_stream, filters, seen_at) VALUES ('k', 'kg', 'made', 'birth', '{}', now())
ON CONFLICT DO NOTHING;
INSERT INTO event_class_count VALUES ('minute', date_trunc('minute', now()), 1, 5) ON CONFLICT DO NOTHING;
INSERT INTO event_read (event_id, recipient_ref) SELECT event_id, recipient_ref FROM iu_route_attempt LIMIT 1;
INSERT INTO iu_route_dead_letter (event_id, event_snapshot, idempotency_key, failure_code, last_error, event_domain, worker_name)
VALUES (gen_random_uuid(), '{"event_type": "made"}', 'k', 'ROUTE_FAILED', 'fixture', 'kg', 'iu_outbound_default');
SELECT fn_iu_emit_event('kg', 'made', 'birth', 'delayed', 'info', 'unit', 'late');

-- Units and notifications.
SELECT fn_iu_save('doc/1', 'the body', 'ann', 'book-1', 'import-1');
SELECT fn_iu_comment((SELECT id FROM information_unit), 'a remark', 'ben');
SELECT fn_iu_draft_create((SELECT id FROM information_unit), 'a draft', 'ben');
UPDATE iu_notification_pending SET created_at = now() - interval '10 minutes';
SELECT fn_iu_notification_worker_tick();
SELECT fn_iu_save('doc/2', 'another body', 'ann', 'book-2', NULL);
INSERT INTO iu_notification_read (event_id, reader_ref) SELECT id, 'user:ann' FROM iu_notification_event LIMIT 1;

-- Stored snapshots and samples, flags with an expiry, marks.
SELECT fn_dot_config_set('queue.notify.bridge_enabled', 'true', 'ann', 'fixture', now() + interval '1 day');
SELECT fn_queue_mark('deploy 7', 'ann');
SELECT fn_queue_snapshot('0');
SELECT fn_metrics_sampler_run();
SELECT fn_queue_counter_compact();
INSERT INTO events (event_type, payload) VALUES ('order.held', '{"later": true}');
SELECT fn_webhook_router_run(100);
