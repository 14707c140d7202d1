package pgtest

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Each double that was called is listed once, with the test and the first caller.
func TestCalledIsTold(t *testing.T) {
	t.Parallel()
	const log = `2026-11-23 21:01:44.492 UTC [7] ann [unknown] LOG:  qtop-hostile t_1 public.now()
2026-11-23 21:01:44.492 UTC [7] ann [unknown] CONTEXT:  PL/pgSQL function now() line 1 at RAISE
2026-11-23 21:01:44.492 UTC [7] ann [unknown] STATEMENT:  SELECT now()
2026-11-23 21:01:44.493 UTC [7] ann [unknown] LOG:  qtop-hostile t_1 operator evil.=
2026-11-23 21:01:44.494 UTC [7] ann [unknown] STATEMENT:  SELECT 1 = 1
2026-11-23 21:01:44.495 UTC [7] ann [unknown] ERROR:  value violates check constraint
2026-11-23 21:01:44.496 UTC [7] ann [unknown] LOG:  qtop-hostile t_2 public.now()
`
	err := called(log, func(database string) string { return map[string]string{"t_1": "TestOne"}[database] })
	require.EqualError(t, err, `the hostile world: 2 foreign objects were called:
operator evil.=, called in TestOne
2026-11-23 21:01:44.494 UTC [7] ann [unknown] STATEMENT:  SELECT 1 = 1
public.now(), called in TestOne
2026-11-23 21:01:44.492 UTC [7] ann [unknown] CONTEXT:  PL/pgSQL function now() line 1 at RAISE
2026-11-23 21:01:44.492 UTC [7] ann [unknown] STATEMENT:  SELECT now()`)
	require.NoError(t, called("LOG:  checkpoint starting\n", func(string) string { return "" }))
}

// The doubles are made from the sources, which are found however the test was built: go test
// -trimpath leaves the path of the sources out of the binary.
func TestWordsOfTheSources(t *testing.T) {
	t.Parallel()
	all, err := words()
	require.NoError(t, err)
	require.Contains(t, all, "fn_queue_picture", "a name of the schema")
	require.Contains(t, all, "workerhost", "a name in the programs")
	hash, err := hostileHash()
	require.NoError(t, err)
	require.Len(t, hash, 12)
}
