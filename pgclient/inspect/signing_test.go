package inspect

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

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
