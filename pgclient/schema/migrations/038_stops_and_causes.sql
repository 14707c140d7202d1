-- Why a worker host stopped and which loops it ran last; how the acknowledgement of a condition ends.

ALTER TABLE public.queue_host ADD COLUMN last_loops text[] NOT NULL DEFAULT '{}',
  ADD COLUMN stop_reason text CHECK (length(stop_reason) <= 200);

ALTER TABLE public.queue_alert_ack DROP CONSTRAINT queue_alert_ack_cleared_reason_check,
  ADD CONSTRAINT queue_alert_ack_cleared_reason_check CHECK (cleared_reason IN
    ('expired', 'beat_returned', 'rose_to_critical', 'unacked', 'deregistered', 'share_fell', 'resumed', 'ended'));

---- create above / drop below ----

UPDATE public.queue_alert_ack SET cleared_reason = 'unacked' WHERE cleared_reason = 'ended';
ALTER TABLE public.queue_alert_ack DROP CONSTRAINT queue_alert_ack_cleared_reason_check,
  ADD CONSTRAINT queue_alert_ack_cleared_reason_check CHECK (cleared_reason IN
    ('expired', 'beat_returned', 'rose_to_critical', 'unacked', 'deregistered', 'share_fell', 'resumed'));
ALTER TABLE public.queue_host DROP COLUMN stop_reason, DROP COLUMN last_loops;
