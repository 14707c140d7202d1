package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/embedded"
)

func TestMain(m *testing.M) {
	embedded.SuperviseMain()
	os.Exit(m.Run())
}

// TestSoak runs a soak of one minute with the binary that `make soak` builds.
func TestSoak(t *testing.T) {
	t.Parallel()
	if os.Getenv("QTOP_TEST_FULL") == "" {
		t.Skip("full: a soak of a minute; TestJudge and TestLedger run always")
	}
	binary, dir := filepath.Join(t.TempDir(), "qtop"), t.TempDir()
	out, err := exec.Command("go", "build", "-o", binary, "../../cmd/qtop").CombinedOutput()
	require.NoError(t, err, string(out))
	require.NoError(t, run(t.Context(), []string{"-qtop", binary, "-dir", dir, "-duration", "1m"}, t.Output(), t.Output()))
	samples, err := readSamples(filepath.Join(dir, "samples.jsonl"))
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(samples), 5, "60 where nothing else runs")
	require.NotZero(t, samples[len(samples)-1].Figures["host steady goroutines"])
	require.NoError(t, again(dir, t.Output()))
}
