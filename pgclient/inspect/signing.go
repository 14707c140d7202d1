package inspect

import (
	"context"

	"github.com/qtop/qtop/pgclient"
	"github.com/qtop/qtop/pgclient/pgerror"
	"github.com/qtop/qtop/pgclient/pgpool"
	"github.com/qtop/qtop/pgclient/queue"
)

// SigningFault is a webhook subscription whose requests a live host cannot sign.
type SigningFault struct {
	Host         queue.Text
	Subscription int64
	What, Do     queue.Text // what is wrong with the secret on that host, and the remedy
	Nowhere      bool       // no live host that sends webhooks can sign them
	Of           int        // all faults, also those that are not returned
}

// SigningFaults returns up to 100 subscriptions whose requests a live host cannot sign, first those that no
// host can sign.
func SigningFaults(ctx context.Context, c *pgclient.Client) ([]SigningFault, error) {
	return read[SigningFault](ctx, c, `WITH fault AS MATERIALIZED (SELECT f.* FROM public.v_signing_fault f
		), lacks AS (SELECT f.subscription_id, count(DISTINCT f.host_id) AS hosts FROM fault f GROUP BY f.subscription_id
		)
		SELECT f.host_id, f.subscription_id, f.what, f.remedy, l.hosts >= (SELECT count(*) FROM public.queue_host q WHERE q.stopped_at IS NULL
			AND q.last_seen_at > now() - interval '15 seconds' AND q.last_seen_at <= clock_timestamp() + interval '5 seconds'
			AND 'webhook_worker' = ANY (q.loops)) AS nowhere, (count(*) OVER ())::int
		FROM fault f JOIN lacks l ON l.subscription_id = f.subscription_id
		ORDER BY nowhere DESC, f.subscription_id, f.host_id LIMIT 100`)
}

// UnknownSecret is a secret that active and verified webhook subscriptions name and with which live hosts cannot sign.
type UnknownSecret struct {
	Ref           string
	Subscriptions int          // active and verified webhook subscriptions that name it
	First         int64        // the first of these
	Hosts         []queue.Text // live hosts that cannot sign with it, and are in no [SigningFault] of it
	Nowhere       bool         // no live host that sends webhooks can sign with it
	Of            int          // all such secrets, also those that are not returned
}

// unknownSecretsSQL reads what each host reports once: a host can report many secrets, and many can be named.
const unknownSecretsSQL = `WITH host AS MATERIALIZED (SELECT h.host_id, h.secret_refs FROM public.v_webhook_host_secrets h
		), fault AS MATERIALIZED (SELECT f.host_id, f.subscription_id FROM public.v_signing_fault f
		), named AS MATERIALIZED (SELECT s.secret_ref, count(*)::int AS n, min(s.id) AS first FROM public.subscriptions s
			WHERE s.active AND s.verified AND s.secret_ref IS NOT NULL GROUP BY s.secret_ref
		), lacks AS MATERIALIZED (SELECT n.secret_ref, h.host_id FROM named n CROSS JOIN host h WHERE h.secret_refs IS NOT NULL
			EXCEPT SELECT r.ref, h.host_id FROM host h CROSS JOIN LATERAL unnest(h.secret_refs) r (ref)
		), untold AS (SELECT l.secret_ref, l.host_id FROM lacks l
			EXCEPT SELECT s.secret_ref, f.host_id FROM fault f JOIN public.subscriptions s ON s.id = f.subscription_id WHERE s.active AND s.verified
		), lacked AS (SELECT l.secret_ref, count(*) = (SELECT count(*) FROM host) AS nowhere FROM lacks l GROUP BY l.secret_ref
		), missed AS (SELECT u.secret_ref, array_agg(u.host_id ORDER BY u.host_id) AS hosts, l.nowhere, (count(*) OVER ())::int AS total
			FROM untold u JOIN lacked l ON l.secret_ref = u.secret_ref
			GROUP BY u.secret_ref, l.nowhere ORDER BY l.nowhere DESC, u.secret_ref LIMIT 20
		)
		SELECT m.secret_ref, n.n, n.first, m.hosts, m.nowhere, m.total
		FROM missed m JOIN named n ON n.secret_ref = m.secret_ref ORDER BY m.nowhere DESC, m.secret_ref`

// UnknownSecrets returns up to 20 secrets that hosts would miss at the next delivery, as they report
// them, first those that no host has; [SigningFaults] knows only deliveries that were tried.
func UnknownSecrets(ctx context.Context, c *pgclient.Client) ([]UnknownSecret, error) {
	return read[UnknownSecret](ctx, c, unknownSecretsSQL)
}

// Unsigned returns the number of webhook subscriptions without a secret that are sent to: active and verified ones.
func Unsigned(ctx context.Context, c *pgclient.Client) (n int, err error) {
	ctx, cancel := context.WithTimeout(ctx, pgpool.ReadTimeout)
	defer cancel()
	err = c.Read().QueryRow(ctx, "SELECT count(*)::int FROM public.subscriptions s WHERE s.active AND s.verified AND s.secret_ref IS NULL").Scan(&n)
	return n, pgerror.Translate(err)
}

// Misformed returns the webhook subscriptions whose URL has a form that is no longer accepted, at most
// 20, and their number: what is shown as their endpoint may be a part of the URL that is secret.
func Misformed(ctx context.Context, c *pgclient.Client) (ids []int64, of int, err error) {
	rows, err := read[struct {
		ID int64
		Of int
	}](ctx, c, `SELECT s.id, (count(*) OVER ())::int FROM public.subscriptions s
		WHERE s.endpoint !~ '^([^][/?#@:[:space:]]+|[[][0-9a-f:.]+[]])(:[0-9]*)?$' ORDER BY s.id LIMIT 20`)
	for _, r := range rows {
		ids, of = append(ids, r.ID), r.Of
	}
	return ids, of, err
}
