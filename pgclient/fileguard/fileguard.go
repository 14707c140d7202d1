// Package fileguard judges the files that decide what runs: whether anybody but root and
// the user of this process may write them, or read them where they hold a secret. Each
// finding names the file and the command that closes it, as ssh and libpq do. Symbolic links are followed: what counts is the file itself and the
// folders on its real path.
package fileguard

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// owner is the uid of a file; false where the system has none.
type owner func(fs.FileInfo) (int, bool)

// Finding is what is wrong with a file. Refuse: everybody may change it, or read
// the secret in it. Otherwise it is a warning: a group may write it, or it belongs
// to somebody whom the operator may trust and this program cannot know.
type Finding struct {
	What, Do string
	Refuse   bool
}

// Secret judges the mode of a file that holds a secret: nobody else may read or
// write it. One that belongs to root may be read by a group.
func Secret(path string, info fs.FileInfo) *Finding {
	most := fs.FileMode(0o600)
	if uid, ok := fileOwner(info); ok && uid == 0 && os.Geteuid() != 0 {
		most = 0o640
	}
	if mode := info.Mode().Perm(); mode&^most&0o066 != 0 {
		return &Finding{fmt.Sprintf("file %s has mode %04o, open to others than its owner", path, mode), "chmod 600 " + path, true}
	}
	return nil
}

// Kept judges a file that holds a secret and its folders; one that is not there has
// no findings.
func Kept(path string) []Finding {
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() {
		return nil
	}
	if f := Secret(path, info); f != nil {
		return []Finding{*f}
	}
	return Trusted(path)
}

// Trusted judges a file that decides what runs: nobody but root and this user may
// write it, or exchange it in one of its folders. A file that is not there, or that
// nobody else may change, has no findings.
func Trusted(path string) []Finding { return trusted(path, os.Geteuid(), fileOwner) }

// Command judges the program at path and every file among its arguments, also behind a
// "=": what an interpreter is told to run decides as much as the interpreter does. A
// relative argument is one of the working directory, which the program will share.
func Command(path string, arguments []string) []Finding {
	all := Trusted(path)
	for _, a := range arguments {
		_, value, _ := strings.Cut(a, "=")
		for _, file := range []string{a, value} {
			if info, err := os.Stat(file); err == nil && info.Mode().IsRegular() {
				for _, f := range Trusted(file) {
					if !slices.Contains(all, f) {
						all = append(all, f)
					}
				}
			}
		}
	}
	return all
}

func trusted(path string, me int, own owner) (all []Finding) {
	if path == "" {
		return nil
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil
	}
	target, err := filepath.EvalSymlinks(abs)
	if err != nil {
		return nil // the program that opens the file reports the error
	}
	seen := map[string]bool{}
	look := func(kind, p string) {
		if seen[p] {
			return
		}
		seen[p] = true
		info, err := os.Stat(p)
		if err != nil {
			return
		}
		if f := judge(kind, p, info, me, own); f != nil {
			all = append(all, *f)
		}
	}
	// Both paths decide: who may exchange the link chooses the file.
	look("file", target)
	for _, p := range []string{target, abs} {
		for dir := filepath.Dir(p); ; dir = filepath.Dir(dir) {
			look("folder", dir)
			if dir == filepath.Dir(dir) {
				break
			}
		}
	}
	return all
}

// judge is that of one file or folder. In a folder with the sticky bit, such as
// /tmp, only its owner exchanges a file.
func judge(kind, path string, info fs.FileInfo, me int, own owner) *Finding {
	mode := info.Mode()
	sticky := kind == "folder" && mode&fs.ModeSticky != 0
	everybody := mode.Perm()&0o002 != 0 && !sticky
	if uid, ok := own(info); ok && uid != me && uid != 0 && !everybody {
		return &Finding{
			fmt.Sprintf("%s %s belongs to user %d, neither to this user nor to root", kind, path, uid), fmt.Sprintf("chown %d %s", me, path), false,
		}
	}
	if mode.Perm()&0o022 == 0 || sticky {
		return nil
	}
	return &Finding{fmt.Sprintf("others may write %s %s (mode %04o)", kind, path, mode.Perm()), "chmod go-w " + path, everybody}
}
