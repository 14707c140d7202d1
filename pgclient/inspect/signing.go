package inspect

import (
	"context"

	"github.com/qtop/qtop/pgclient"
	"github.com/qtop/qtop/pgclient/pgerror"
	"github.com/qtop/qtop/pgclient/pgpool"
	"github.com/qtop/qtop/pgclient/pgrow"
	"github.com/qtop/qtop/pgclient/queue"
)

// SigningFault is a webhook subscription whose requests a live host cannot sign.
type SigningFault struct {
	Host         queue.Text
	Subscription int64
	What, Do     queue.Text // what is wrong with the secret on that host, and the remedy
}

// SigningFaults returns up to 100 subscriptions whose requests a live host cannot sign, and the
// number of live hosts that send webhooks.
func SigningFaults(ctx context.Context, c *pgclient.Client) (faults []SigningFault, hosts int, err error) {
	ctx, cancel := context.WithTimeout(ctx, pgpool.ReadTimeout)
	defer cancel()
	faults, err = pgrow.All[SigningFault](ctx, c.Read(), `SELECT f.host_id, f.subscription_id, f.what, f.remedy FROM public.v_signing_fault f
		ORDER BY f.subscription_id, f.host_id LIMIT 100`)
	if err != nil {
		return nil, 0, pgerror.Translate(err)
	}

	err = c.Read().QueryRow(ctx, `SELECT count(*)::int FROM public.queue_host q WHERE q.stopped_at IS NULL
		AND q.last_seen_at > now() - interval '15 seconds' AND q.last_seen_at <= clock_timestamp() + interval '5 seconds'
			AND 'webhook_worker' = ANY (q.loops)`).Scan(&hosts)
	return faults, hosts, pgerror.Translate(err)
}

// UnknownSecret is a secret that active webhook subscriptions name and with which live hosts cannot sign.
type UnknownSecret struct {
	Ref           string
	Subscriptions int          // active webhook subscriptions that name it
	First         int64        // the first of these
	Hosts         []queue.Text // live hosts that cannot sign with it, and are in no [SigningFault] of it
	Nowhere       bool         // no live host that sends webhooks can sign with it
}

// UnknownSecrets returns up to 20 secrets that hosts would miss at the next delivery, as they report
// them; [SigningFaults] knows only deliveries that were tried.
func UnknownSecrets(ctx context.Context, c *pgclient.Client) ([]UnknownSecret, error) {
	return read[UnknownSecret](ctx, c, `WITH named AS (
			SELECT s.secret_ref, count(*)::int AS n, min(s.id) AS first, array_agg(s.id) AS ids FROM public.subscriptions s
			WHERE s.active AND s.secret_ref IS NOT NULL GROUP BY 1
		), missed AS (
			SELECT n.secret_ref, n.n, n.first,
				ARRAY(SELECT h.host_id FROM public.v_webhook_host_secrets h WHERE n.secret_ref <> ALL (h.secret_refs)
					AND NOT EXISTS (SELECT FROM public.v_signing_fault f WHERE f.host_id = h.host_id AND f.subscription_id = ANY (n.ids)) ORDER BY 1) AS hosts,
				NOT EXISTS (SELECT FROM public.v_webhook_host_secrets h WHERE n.secret_ref <> ALL (h.secret_refs) IS NOT TRUE) AS nowhere
			FROM named n
		)
		SELECT m.secret_ref, m.n, m.first, m.hosts, m.nowhere FROM missed m WHERE m.hosts <> '{}' ORDER BY m.secret_ref LIMIT 20`)
}

// Unsigned returns the number of active webhook subscriptions without a secret.
func Unsigned(ctx context.Context, c *pgclient.Client) (n int, err error) {
	ctx, cancel := context.WithTimeout(ctx, pgpool.ReadTimeout)
	defer cancel()
	err = c.Read().QueryRow(ctx, "SELECT count(*)::int FROM public.subscriptions s WHERE s.active AND s.secret_ref IS NULL").Scan(&n)
	return n, pgerror.Translate(err)
}

// Misformed returns the webhook subscriptions whose URL has a form that is no longer accepted, at most
// 20: what is shown as their endpoint may be a part of the URL that is secret.
func Misformed(ctx context.Context, c *pgclient.Client) (ids []int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, pgpool.ReadTimeout)
	defer cancel()
	ids, err = pgrow.Column[int64](ctx, c.Read(), `SELECT s.id FROM public.subscriptions s
		WHERE s.endpoint !~ '^([^][/?#@:[:space:]]+|[[][0-9a-f:.]+[]])(:[0-9]*)?$' ORDER BY s.id LIMIT 20`)
	return ids, pgerror.Translate(err)
}
