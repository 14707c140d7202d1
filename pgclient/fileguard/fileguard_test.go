package fileguard

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// of returns a function that says that every file belongs to this user.
func of(uid int) owner { return func(fs.FileInfo) (int, bool) { return uid, true } }

func TestTrusted(t *testing.T) {
	t.Parallel()
	root := t.TempDir() // below /tmp, which has the sticky bit
	dir := filepath.Join(root, "etc")
	file := filepath.Join(dir, "config")
	link := filepath.Join(root, "link")
	require.NoError(t, os.Mkdir(dir, 0o755))           // no finding: others may read
	require.NoError(t, os.WriteFile(file, nil, 0o644)) // no finding: others may read
	require.NoError(t, os.Symlink(file, link))
	for _, c := range []struct {
		name      string
		dir, file fs.FileMode
		me, owner int
		says, do  string
		refuse    bool
	}{
		{"fine", 0o755, 0o644, 7, 7, "", "", false},
		{"fine, of root", 0o755, 0o644, 7, 0, "", "", false},
		{"root's own", 0o755, 0o644, 0, 0, "", "", false},
		{"everybody writes the file", 0o755, 0o646, 7, 7, "others may write file " + file + " (mode 0646)", "chmod go-w " + file, true},
		{"a group writes the file", 0o755, 0o664, 7, 7, "others may write file " + file, "chmod go-w " + file, false},
		{"everybody writes the folder", 0o777, 0o644, 7, 7, "others may write folder " + dir + " (mode 0777)", "chmod go-w " + dir, true},
		{"a group writes the folder", 0o775, 0o644, 7, 7, "others may write folder " + dir, "chmod go-w " + dir, false},
		{"everybody, with the sticky bit", fs.ModeSticky | 0o777, 0o644, 7, 7, "", "", false},
		{"a stranger's", 0o755, 0o644, 7, 8, "belongs to user 8", "chown 7 ", false},
		{"a stranger's, and everybody writes it", 0o755, 0o666, 7, 8, "others may write file " + file, "chmod go-w " + file, true},
		{"a stranger's, before root", 0o755, 0o644, 0, 8, "belongs to user 8", "chown 0 ", false},
	} {
		require.NoError(t, os.Chmod(dir, c.dir), c.name)
		require.NoError(t, os.Chmod(file, c.file), c.name)
		for _, path := range []string{file, link} {
			all := trusted(path, c.me, of(c.owner))
			if c.says == "" {
				require.Empty(t, all, c.name)
				continue
			}
			require.NotEmpty(t, all, c.name)
			require.Contains(t, all[0].What, c.says, c.name)
			require.Contains(t, all[0].Do, c.do, c.name)
			require.Equal(t, c.refuse, all[0].Refuse, c.name)
		}
	}
	require.Empty(t, Trusted(filepath.Join(root, "none")))
	require.Empty(t, Trusted(""))
}

func TestKept(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "key")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	require.Empty(t, Kept(file))
	require.NoError(t, os.Chmod(file, 0o644)) // the fault
	all := Kept(file)
	require.Len(t, all, 1)
	require.True(t, all[0].Refuse)
	require.Equal(t, "chmod 600 "+file, all[0].Do)
	require.Empty(t, Kept(filepath.Dir(file)), "no file")
}
