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

// Who may replace a link on the way, in whatever folder it is, chooses the file.
func TestEachLinkCounts(t *testing.T) {
	t.Parallel()
	root, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	in := func(name ...string) string { return filepath.Join(append([]string{root}, name...)...) }
	for _, dir := range []string{"bin", "links", "opt", "opt/app"} {
		require.NoError(t, os.Mkdir(in(dir), 0o755))
	}
	require.NoError(t, os.WriteFile(in("opt", "app", "h"), nil, 0o755)) //nolint:gosec // a program
	for link, to := range map[string]string{
		"bin/h": in("links", "h"), "links/h": in("opt", "app", "h"), // a chain of links
		"bin/app": "../links/app", "links/app": "../opt/app", // a chain of linked folders
		"bin/loop": "loop",
	} {
		require.NoError(t, os.Symlink(to, in(link)))
	}
	paths := []string{in("bin", "h"), in("bin", "app", "h"), in("bin", "app", "..", "app", "h")}
	for _, path := range paths {
		require.Empty(t, trusted(path, 7, of(7)), path)
	}
	require.Empty(t, trusted(in("bin", "loop"), 7, of(7)))
	require.NoError(t, os.Chmod(in("links"), 0o777)) //nolint:gosec // the fault
	for _, path := range paths {
		all := trusted(path, 7, of(7))
		require.Len(t, all, 1, path)
		require.Equal(t, Finding{"others may write folder " + in("links") + " (mode 0777)", "chmod go-w " + in("links"), true}, all[0])
	}
	require.NoError(t, os.Chmod(in("links"), fs.ModeSticky|0o777)) // now only its owner may replace a link
	for _, x := range []struct{ path, link string }{{paths[0], in("links", "h")}, {paths[1], in("links", "app")}} {
		require.Empty(t, trusted(x.path, 7, of(7)))
		stranger := func(info fs.FileInfo) (int, bool) {
			if info.Mode()&fs.ModeSymlink != 0 && info.Name() == filepath.Base(x.link) {
				return 8, true
			}
			return 7, true
		}
		all := trusted(x.path, 7, stranger)
		require.Len(t, all, 2, x.path)
		require.Contains(t, all, Finding{"link " + x.link + " belongs to user 8, neither to this user nor to root", "chown -h 7 " + x.link, false})
	}
}
