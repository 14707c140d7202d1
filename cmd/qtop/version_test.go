package main

import (
	"os"
	"regexp"
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/require"
)

// The program, the packages, the changelog and the record of what the schema of the release
// contained name the same release: one that is declared without -freeze is not compared with
// later code.
func TestTheChangelogHasTheRelease(t *testing.T) {
	text, err := os.ReadFile("../../CHANGELOG.md")
	require.NoError(t, err)
	newest := regexp.MustCompile(`(?m)^## \[(\d+\.\d+\.\d+)\] - \d{4}-\d\d-\d\d$`).FindSubmatch(text)
	require.NotNil(t, newest, "CHANGELOG.md has no section ## [X.Y.Z] - DATE")
	require.Equal(t, release, "v"+string(newest[1]))
	frozen, err := os.ReadFile("../../pgclient/schema/released.txt")
	require.NoError(t, err)
	require.Contains(t, string(frozen), "\nrelease "+string(newest[1])+"\n", "go run ./pgclient/schema/lint -freeze %s", newest[1])
}

func TestTheCommitIsStamped(t *testing.T) {
	revision := debug.BuildSetting{Key: "vcs.revision", Value: "2b7c82bb1a3f4d5e6f708192a3b4c5d6e7f80910"}
	require.Equal(t, "2b7c82bb1a3f", commitOf([]debug.BuildSetting{revision, {Key: "vcs.modified", Value: "false"}}))
	require.Equal(t, "2b7c82bb1a3f.modified", commitOf([]debug.BuildSetting{revision, {Key: "vcs.modified", Value: "true"}}))
	require.Empty(t, commitOf([]debug.BuildSetting{{Key: "GOOS", Value: "linux"}}))
}
