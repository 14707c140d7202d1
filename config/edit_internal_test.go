package config

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// A new file gets its name also where the file system has no hard links, and replaces none.
func TestPlaceNewWithoutHardLinks(t *testing.T) {
	t.Parallel()
	no := func(from, to string) error { return &os.LinkError{Op: "link", Old: from, New: to, Err: syscall.EPERM} }
	dir := t.TempDir()
	from, to := filepath.Join(dir, "from"), filepath.Join(dir, "to")
	require.NoError(t, os.WriteFile(from, []byte("new"), 0o600))
	require.NoError(t, placeNew(from, to, no))
	text, err := os.ReadFile(to)
	require.NoError(t, err)
	require.Equal(t, "new", string(text))
	require.NoError(t, os.WriteFile(from, []byte("newer"), 0o600))
	for _, link := range []func(from, to string) error{no, os.Link} {
		require.ErrorIs(t, placeNew(from, to, link), errChanging)
	}
	text, err = os.ReadFile(to)
	require.NoError(t, err)
	require.Equal(t, "new", string(text))
}
