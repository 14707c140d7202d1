// Package fileguard checks the files that decide which programs qtop runs: whether anybody but root
// and the user of this process may write such a file, or read it if it holds a secret. Like ssh and
// libpq, it names the file and the command that closes it. Symbolic links are followed one by
// one: the file itself, each link, and the folders on the way count. It also reads files in a limited time.
package fileguard

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// owner returns the uid of a file's owner; false if the system has no uids.
type owner func(fs.FileInfo) (int, bool)

// Finding is a problem with the mode or the owner of a file. Refuse means that everybody may change
// the file, or read the secret in it. Otherwise the finding is a warning: a group may write the
// file, or it belongs to somebody whom the operator may trust, which this program cannot know.
type Finding struct {
	What, Do string
	Refuse   bool
}

// Secret checks the mode of a file that holds a secret: only its owner may read or write it. A file
// that belongs to root may be read by a group.
func Secret(path string, info fs.FileInfo) *Finding {
	most := fs.FileMode(0o600)
	if uid, ok := fileOwner(info); ok && uid == 0 && os.Geteuid() != 0 {
		most = 0o640
	}
	if mode := info.Mode().Perm(); mode&^most&0o066 != 0 {
		return &Finding{fmt.Sprintf("file %s has mode %04o, open to others than its owner", path, mode), fmt.Sprintf("chmod %o %s", most, path), true}
	}
	return nil
}

// Kept checks a file that holds a secret, and the folders on its path. A file that does not exist
// has no findings.
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

// Trusted checks a file that decides which programs run: only root and this user may write it, or
// replace it in one of the folders on its path. A file that does not exist has no findings.
func Trusted(path string) []Finding { return trusted(path, os.Geteuid(), fileOwner) }

// Command checks the program at path and every file among its arguments, also after a "=": the
// script of an interpreter decides as much as the interpreter. A relative argument is taken from
// the working directory, which the program will have too.
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
	if _, err := os.Stat(abs); err != nil {
		return nil // the program that opens the file reports the error
	}
	seen := map[string]bool{}
	look := func(kind, p string) {
		if seen[p] {
			return
		}
		seen[p] = true
		info, err := os.Lstat(p)
		if err != nil {
			return
		}
		if f := judge(kind, p, info, me, own); f != nil {
			all = append(all, *f)
		}
	}
	// A user who may replace any link on the way chooses the file.
	target, steps := walk(abs)
	look("file", target)
	for _, s := range steps {
		look(s.kind, s.path)
	}
	return all
}

// step is a folder or a link on the way to a file.
type step struct{ kind, path string }

// mostLinks is how many links a path may lead through; systems allow fewer.
const mostLinks = 255

// walk follows an absolute path through all its links. It returns the file to which it leads, and
// the folders and links on the way, the last of them first.
func walk(path string) (target string, steps []step) {
	at, rest := root(path), parts(path)
	steps = []step{{"folder", at}}
	for links := 0; len(rest) > 0; {
		name := rest[0]
		rest = rest[1:]
		switch name {
		case "", ".":
			continue
		case "..":
			at = filepath.Dir(at)
			continue
		}
		next := filepath.Join(at, name)
		info, err := os.Lstat(next)
		switch {
		case err != nil:
			return next, steps
		case info.Mode()&fs.ModeSymlink != 0:
			steps = append(steps, step{"link", next})
			to, err := os.Readlink(next)
			if links++; err != nil || links > mostLinks {
				return next, steps
			}
			if filepath.IsAbs(to) {
				at = root(to)
				steps = append(steps, step{"folder", at})
			}
			rest = append(parts(to), rest...)
			continue
		case info.IsDir():
			steps = append(steps, step{"folder", next})
		}
		at = next
	}
	slices.Reverse(steps)
	return at, steps
}

func root(path string) string { return filepath.VolumeName(path) + string(filepath.Separator) }

func parts(path string) []string {
	return strings.Split(path[len(filepath.VolumeName(path)):], string(filepath.Separator))
}

// judge checks one file, folder or link. In a folder with the sticky bit, such as /tmp, only the
// owner of a file may replace it. Everybody's mode of a link means nothing.
func judge(kind, path string, info fs.FileInfo, me int, own owner) *Finding {
	mode := info.Mode()
	sticky := kind == "folder" && mode&fs.ModeSticky != 0 || kind == "link"
	chown := "chown"
	if kind == "link" {
		chown = "chown -h" // of the link itself
	}
	everybody := mode.Perm()&0o002 != 0 && !sticky
	if uid, ok := own(info); ok && uid != me && uid != 0 && !everybody {
		return &Finding{
			fmt.Sprintf("%s %s belongs to user %d, neither to this user nor to root", kind, path, uid), fmt.Sprintf("%s %d %s", chown, me, path), false,
		}
	}
	if mode.Perm()&0o022 == 0 || sticky {
		return nil
	}
	return &Finding{fmt.Sprintf("others may write %s %s (mode %04o)", kind, path, mode.Perm()), "chmod go-w " + path, everybody}
}
