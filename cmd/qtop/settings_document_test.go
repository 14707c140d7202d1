package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A setting without a default shows a dash as its default, never its type.
func TestSettingWithoutDefault(t *testing.T) {
	t.Parallel()
	text, err := settingsMarkdown(flagsChapter + "| key |\n\n")
	require.NoError(t, err)
	require.Contains(t, text, "| `dsn` | `--dsn` | `QTOP_DSN` | – |")
	require.Contains(t, text, "| `concurrency` | `--concurrency` | `QTOP_CONCURRENCY` | `64` |")
}
