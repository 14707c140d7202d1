package main

// Checks of files: who may read or write the files that decide what runs or
// that hold secrets: the configuration, the files of the driver, handlers and
// signing secrets.

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"github.com/qtop/qtop/config"
	"github.com/qtop/qtop/pgclient/fileguard"
	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/pgclient/queue/secrecy"
	"github.com/qtop/qtop/workerhost/sender"
)

// fileFinding is a finding about a file, with the use of the file. unread means that its file system does
// not answer; any other finding has a command as remedy.
type fileFinding struct {
	fileguard.Finding
	use    string
	unread bool
}

func (f fileFinding) problem() config.Problem {
	return config.Problem{What: f.What, Where: f.use, Do: queue.Choose(f.unread, "", "run ") + f.Do}
}

// fileCheck is a check of a file, with the use of the file.
type fileCheck struct {
	use, path string
	find      func() []fileguard.Finding
}

// findings does the checks. After one without an answer it does no other: the files may be on one file system.
func findings(checks []fileCheck) (out []fileFinding) {
	for _, c := range checks {
		all, err := fileguard.Within(func() ([]fileguard.Finding, error) { return c.find(), nil })
		if err != nil {
			p := noAnswer(c.path, c.use)
			return append(out, fileFinding{fileguard.Finding{What: p.What, Do: p.Do, Refuse: true}, c.use, true})
		}
		for _, f := range all {
			out = append(out, fileFinding{f, c.use, false})
		}
	}
	return out
}

// noAnswer is the problem of a file whose file system does not answer. setting says what names the file.
func noAnswer(path, setting string) config.Problem {
	return config.Problem{What: "file " + path + " cannot be read: " + fileguard.ErrNoAnswer.Error(), Where: setting, Do: "repair that file system, or name another file"}
}

// unreadFile returns an error if the program has just found a file of secrets that it cannot read in time; the
// driver would wait for it without a limit.
func unreadFile() error {
	path, setting := secrecy.Unread()
	if path == "" {
		return nil
	}
	return config.Problems{noAnswer(path, setting)}
}

// refused returns an error with the findings that are too dangerous to go on
// (Refuse), or nil.
func refused(all []fileFinding) error {
	var ps config.Problems
	for _, f := range all {
		if f.Refuse {
			ps = append(ps, f.problem())
		}
	}
	if len(ps) == 0 {
		return nil
	}
	return ps
}

// guarded checks the files that every verb reads: the configuration file, and
// the service, password and key files of the driver.
func guarded(src config.Sources, s config.Settings) []fileFinding {
	var checks []fileCheck
	check := func(use, path string, find func(string) []fileguard.Finding) {
		checks = append(checks, fileCheck{use, path, func() []fileguard.Finding { return find(path) }})
	}
	check("configuration file", config.File(src), fileguard.Trusted)
	in := func(name, variable, home string) (paths []string) {
		for _, dsn := range []string{s.DSN, s.ListenDSN} {
			if p := secrecy.Parameter(dsn, name); p != "" {
				paths = append(paths, p)
			}
		}
		switch dir, err := os.UserHomeDir(); {
		case os.Getenv(variable) != "":
			return append(paths, os.Getenv(variable))
		case err == nil && home != "":
			return append(paths, filepath.Join(dir, home))
		}
		return paths
	}
	for _, p := range in("servicefile", "PGSERVICEFILE", ".pg_service.conf") {
		check("service file", p, func(path string) []fileguard.Finding {
			if namesPassword(path) {
				return fileguard.Kept(path)
			}
			return fileguard.Trusted(path)
		})
	}
	for _, p := range in("passfile", "PGPASSFILE", ".pgpass") {
		check("password file", p, fileguard.Kept)
	}
	for _, p := range in("sslkey", "PGSSLKEY", "") {
		check("sslkey", p, fileguard.Kept)
	}
	return findings(checks)
}

// mostService is how much of a service file is read; a few services need far less.
const mostService = 1 << 20

// namesPassword reports whether a service file has a word password.
func namesPassword(path string) bool {
	text, _, _ := fileguard.Read(path, mostService) // the part before an error is used
	return bytes.Contains(text, []byte("password"))
}

// hostFiles checks the files that only a worker host uses: the commands of
// handlers and the files of signing secrets.
func hostFiles(s config.Settings) []fileFinding {
	var checks []fileCheck
	for _, h := range s.Handlers {
		if len(h.Command) == 0 {
			continue
		}
		checks = append(checks, fileCheck{"handler of " + h.Kind, h.Command[0], func() []fileguard.Finding {
			path, err := exec.LookPath(h.Command[0])
			if err != nil {
				return nil
			}
			return fileguard.Command(path, h.Command[1:])
		}})
	}
	for _, x := range s.Delivery.Secrets {
		if x.File != "" {
			checks = append(checks, fileCheck{"secret " + x.Ref, x.File, func() []fileguard.Finding { return fileguard.Kept(x.File) }})
		}
	}
	return findings(checks)
}

func secretSources(in []config.Secret) []sender.SecretSource {
	var out []sender.SecretSource
	for _, s := range in {
		from := queue.Choose(s.Env != "", "env:"+s.Env, "file:"+s.File)
		out = append(out, sender.SecretSource{Ref: s.Ref, From: from})
	}
	return out
}

// unreadableSecrets returns a line for each reference with which this user cannot sign because of a
// file. Secrets in variables are left out: the variables of a service are not those of this process.
func unreadableSecrets(s config.Settings) (all []queue.Text) {
	inFiles := slices.DeleteFunc(slices.Clone(s.Delivery.Secrets), func(x config.Secret) bool { return x.File == "" })
	secrets, err := sender.NewSecrets(secretSources(inFiles))
	if err != nil {
		return []queue.Text{queue.Said(err)}
	}
	for _, ref := range secrets.Refs() {
		if _, fault := secrets.Look(ref); fault != nil {
			all = append(all, queue.Clean(secrecy.Mask(fault.Error())))
		}
	}
	return all
}
