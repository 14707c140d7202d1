package fileguard

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	require.NoError(t, os.WriteFile(file, []byte("content"), 0o600))
	text, info, err := Read(file, 100)
	require.NoError(t, err)
	require.Equal(t, "content", string(text))
	require.Equal(t, fs.FileMode(0o600), info.Mode())
	text, _, err = Read(file, 4)
	require.NoError(t, err)
	require.Equal(t, "cont", string(text))
	_, _, err = Read(dir, 4)
	require.ErrorIs(t, err, ErrIrregular)
	_, _, err = Read(filepath.Join(dir, "none"), 4)
	require.ErrorIs(t, err, fs.ErrNotExist)
}

// What does not return in time is left behind; what does keeps its value beside its error.
func TestWithin(t *testing.T) {
	t.Parallel()
	answers := make(chan struct{})
	returned := make(chan struct{})
	_, err := within(time.Millisecond, func() (int, error) {
		defer close(returned)
		<-answers
		return 1, nil
	})
	require.ErrorIs(t, err, ErrNoAnswer)
	close(answers)
	<-returned
	broken := errors.New("broken")
	part, err := within(time.Minute, func() (int, error) { return 3, broken })
	require.Equal(t, 3, part)
	require.ErrorIs(t, err, broken)
}
