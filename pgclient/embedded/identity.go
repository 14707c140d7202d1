// The user of the server. PostgreSQL refuses to run as root, so root runs it as another user or,
// where no other user exists, in a user namespace.

package embedded

import (
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// nobodyID is the uid and gid to which the user of this process is mapped inside a user namespace.
const nobodyID = 65534

// identity is the user that runs the server's programs and owns its files.
type identity struct {
	uid, gid int
	name     string
	drop     bool // switch from root to uid and gid
	ns       bool // same user, but mapped to another one inside a user namespace
}

// as returns the identity for messages, with a leading space; "" = the user of this process.
func (id identity) as() string {
	switch {
	case id.ns:
		return " in a user namespace"
	case id.drop:
		return " as user " + id.name
	}
	return ""
}

func self() identity { return identity{uid: os.Geteuid(), gid: os.Getegid()} }

func inNamespace() identity {
	id := self()
	id.ns, id.name = true, "in a user namespace"
	return id
}

// identities returns the users as whom the server could run, best first. initdb looks up its user
// by number, so only users with a passwd entry count. Whether this process can become such a user
// shows when the programs are first run (see inspect): in a rootless container often only uid 0 is
// mapped.
func identities() []identity {
	if os.Geteuid() != 0 {
		return []identity{self()}
	}
	var ids []identity
	add := func(u *user.User, err error) {
		if err != nil {
			return
		}
		if id, ok := toIdentity(u); ok && id.uid != 0 {
			ids = append(ids, id)
		}
	}
	if uid := os.Getenv("SUDO_UID"); uid != "" {
		add(user.LookupId(uid))
	}
	add(user.Lookup("postgres"))
	add(user.Lookup("nobody"))
	if namespaces {
		ids = append(ids, inNamespace())
	}
	return ids
}

func toIdentity(u *user.User) (identity, bool) {
	uid, err1 := strconv.Atoi(u.Uid)
	gid, err2 := strconv.Atoi(u.Gid)
	return identity{uid: uid, gid: gid, name: u.Username, drop: true}, err1 == nil && err2 == nil
}

// ownerOf returns the identity that must run the server of an existing data directory: PostgreSQL
// refuses a data directory that another user owns.
func ownerOf(data string) (identity, bool) {
	fi, err := os.Stat(data)
	if err != nil {
		return identity{}, false
	}
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok || os.Geteuid() != 0 {
		return self(), true
	}
	if st.Uid == 0 {
		return inNamespace(), namespaces
	}
	id := identity{uid: int(st.Uid), gid: int(st.Gid), name: strconv.Itoa(int(st.Uid)), drop: true}
	if u, err := user.LookupId(id.name); err == nil {
		id.name = u.Username
	}
	return id, true
}

// give makes the identity the owner of path.
func (id identity) give(path string) error {
	if !id.drop && !id.ns {
		return nil
	}
	return os.Lchown(path, id.uid, id.gid)
}

// canReach checks that the identity may enter every directory down to path.
func (id identity) canReach(path string) error {
	if !id.drop {
		return nil
	}
	for dir := filepath.Clean(path); ; dir = filepath.Dir(dir) {
		fi, err := os.Stat(dir)
		if err != nil {
			return err
		}
		if st, ok := fi.Sys().(*syscall.Stat_t); ok && !id.mayEnter(fi.Mode(), st) {
			return fmt.Errorf("user %s, as whom the server must run because PostgreSQL refuses root, cannot enter %s; choose a directory outside it or run: chmod o+x %s", id.name, dir, dir)
		}
		if dir == filepath.Dir(dir) {
			return nil
		}
	}
}

func (id identity) mayEnter(mode os.FileMode, st *syscall.Stat_t) bool {
	switch {
	case int(st.Uid) == id.uid:
		return mode&0o100 != 0
	case int(st.Gid) == id.gid:
		return mode&0o010 != 0
	}
	return mode&0o001 != 0
}
