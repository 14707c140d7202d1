package inspect

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient"
	"github.com/qtop/qtop/pgclient/pgtest"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// What the hosts report is read once, not once per secret that webhook subscriptions name.
func TestUnknownSecretsReadsTheHostsOnce(t *testing.T) {
	t.Parallel()
	conn := pgtest.New(t).Conn(t, "")
	for _, sql := range []string{
		`INSERT INTO public.queue_host (host_id, instance, version, loops, progress) SELECT 'h' || i, gen_random_uuid(), '', '{webhook_worker}',
			'{"webhook_worker": {"secrets": ["r1"], "unsigned": [{"subscription": 2}]}}' FROM generate_series(1, 3) i`,
		`INSERT INTO public.subscriptions (event_type, callback_url, active, verified, secret_ref)
			SELECT 't', 'https://a.example/' || i, true, true, 'r' || i FROM generate_series(1, 50) i`,
	} {
		_, err := conn.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	type node struct {
		Relation string  `json:"Relation Name"`
		Loops    float64 `json:"Actual Loops"`
		Plans    []node  `json:"Plans"`
	}
	var raw []byte
	require.NoError(t, conn.QueryRow(t.Context(), "EXPLAIN (ANALYZE, FORMAT JSON) "+unknownSecretsSQL).Scan(&raw))
	var plans []struct{ Plan node }
	require.NoError(t, json.Unmarshal(raw, &plans))
	hosts := 0
	var look func(node)
	look = func(n node) {
		if n.Relation == "queue_host" {
			hosts++
			require.InDelta(t, 1, n.Loops, 0, "%s", raw)
		}
		for _, p := range n.Plans {
			look(p)
		}
	}
	look(plans[0].Plan)
	require.Equal(t, 2, hosts, "%s", raw)
}

// What no host can sign comes before what some host can: the lists have an end, and only the former is bad.
func TestWhatNoHostCanSignComesFirst(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	conn := db.Conn(t, "")
	for _, sql := range []string{
		`INSERT INTO public.queue_host (host_id, instance, version, loops, progress) SELECT 'h' || h, gen_random_uuid(), '', '{webhook_worker}',
			jsonb_build_object('webhook_worker', jsonb_build_object('secrets', CASE WHEN h = 0 THEN (SELECT jsonb_agg('r' || i) FROM generate_series(1, 30) i) ELSE '[]' END,
				'unsigned', (SELECT jsonb_agg(jsonb_build_object('subscription', CASE WHEN i = 50 THEN 999 ELSE 50 * h + i END)) FROM generate_series(1, 50) i)))
			FROM generate_series(0, 2) h`,
		`INSERT INTO public.subscriptions (event_type, callback_url, active, verified, secret_ref)
			SELECT 't', 'https://a.example/' || i, true, true, CASE WHEN i <= 30 THEN 'r' || i ELSE 'x' END FROM generate_series(1, 31) i`,
	} {
		_, err := conn.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	client, err := pgclient.Open(t.Context(), pgclient.Options{DSN: db.DSN("")})
	require.NoError(t, err)
	defer client.Close()

	faults, err := SigningFaults(t.Context(), client)
	require.NoError(t, err)
	require.Len(t, faults, 100)
	for i, f := range faults {
		require.Equal(t, i < 3, f.Nowhere, i)
		require.Equal(t, i < 3, f.Subscription == 999, i)
		require.Equal(t, 150, f.Of)
	}
	unknown, err := UnknownSecrets(t.Context(), client)
	require.NoError(t, err)
	require.Len(t, unknown, 20)
	for i, u := range unknown {
		require.Equal(t, i == 0, u.Nowhere, i)
		require.Equal(t, i == 0, u.Ref == "x", i)
	}
}
