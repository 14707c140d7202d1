-- Lists of waits as flags; since when an endpoint has only failed; how often a circuit was probed in vain.

ALTER TABLE public.dot_config_rule DROP CONSTRAINT dot_config_rule_kind_check,
  ADD CONSTRAINT dot_config_rule_kind_check CHECK (kind IN ('boolean', 'integer', 'mode', 'schedule'));

ALTER TABLE public.webhook_endpoint_state ADD COLUMN failing_since timestamptz;
ALTER TABLE public.webhook_endpoint_suspensions ADD COLUMN failed_probes int NOT NULL DEFAULT 0
    CHECK (failed_probes >= 0),
  DROP CONSTRAINT webhook_endpoint_suspensions_reason_check,
  ADD CONSTRAINT webhook_endpoint_suspensions_reason_check CHECK (reason IN ('410', 'circuit', 'failing', 'operator'));

ALTER TABLE public.queue_alert_ack DROP CONSTRAINT queue_alert_ack_cleared_reason_check,
  ADD CONSTRAINT queue_alert_ack_cleared_reason_check CHECK (cleared_reason IN
    ('expired', 'beat_returned', 'rose_to_critical', 'unacked', 'deregistered', 'share_fell', 'resumed'));

---- create above / drop below ----

UPDATE public.queue_alert_ack SET cleared_reason = 'unacked' WHERE cleared_reason = 'resumed';
ALTER TABLE public.queue_alert_ack DROP CONSTRAINT queue_alert_ack_cleared_reason_check,
  ADD CONSTRAINT queue_alert_ack_cleared_reason_check CHECK (cleared_reason IN
    ('expired', 'beat_returned', 'rose_to_critical', 'unacked', 'deregistered', 'share_fell'));
UPDATE public.webhook_endpoint_suspensions SET reason = 'operator' WHERE reason = 'failing';
ALTER TABLE public.webhook_endpoint_suspensions
  DROP CONSTRAINT webhook_endpoint_suspensions_reason_check,
  ADD CONSTRAINT webhook_endpoint_suspensions_reason_check CHECK (reason IN ('410', 'circuit', 'operator')),
  DROP COLUMN failed_probes;
ALTER TABLE public.webhook_endpoint_state DROP COLUMN failing_since;
DELETE FROM public.dot_config_rule WHERE kind = 'schedule';
ALTER TABLE public.dot_config_rule DROP CONSTRAINT dot_config_rule_kind_check,
  ADD CONSTRAINT dot_config_rule_kind_check CHECK (kind IN ('boolean', 'integer', 'mode'));
