package main

// Checks of files: who may read or write the files that decide what runs or
// that hold secrets: the configuration, the files of the driver, handlers and
// signing secrets.

import (
	"bytes"
	"io"
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

// fileFinding is a finding about a file, with the use of the file.
type fileFinding struct {
	fileguard.Finding
	use string
}

func (f fileFinding) line() string { return f.What + " (" + f.use + "): run " + f.Do }

func findings(use string, all []fileguard.Finding) (out []fileFinding) {
	for _, f := range all {
		out = append(out, fileFinding{f, use})
	}
	return out
}

// refused returns an error with the findings that are too dangerous to go on
// (Refuse), or nil.
func refused(all []fileFinding) error {
	var ps config.Problems
	for _, f := range all {
		if f.Refuse {
			ps = append(ps, config.Problem{What: f.What, Where: f.use, Do: "run " + f.Do})
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
	all := findings("configuration file", fileguard.Trusted(config.File(src)))
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
		if namesPassword(p) {
			all = append(all, findings("service file", fileguard.Kept(p))...)
		} else {
			all = append(all, findings("service file", fileguard.Trusted(p))...)
		}
	}
	for _, p := range in("passfile", "PGPASSFILE", ".pgpass") {
		all = append(all, findings("password file", fileguard.Kept(p))...)
	}
	for _, p := range in("sslkey", "PGSSLKEY", "") {
		all = append(all, findings("sslkey", fileguard.Kept(p))...)
	}
	return all
}

// mostService is how much of a service file is read; a few services need far less.
const mostService = 1 << 20

// namesPassword reports whether a service file has a word password.
func namesPassword(path string) bool {
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() { // opening a pipe would block
		return false
	}
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	text, _ := io.ReadAll(io.LimitReader(f, mostService)) // the part before an error is used
	return bytes.Contains(text, []byte("password"))
}

// hostFiles checks the files that only a worker host uses: the commands of
// handlers and the files of signing secrets.
func hostFiles(s config.Settings) (all []fileFinding) {
	for _, h := range s.Handlers {
		if len(h.Command) == 0 {
			continue
		}
		if path, err := exec.LookPath(h.Command[0]); err == nil {
			all = append(all, findings("handler of "+h.Kind, fileguard.Command(path, h.Command[1:]))...)
		}
	}
	for _, x := range s.Delivery.Secrets {
		if x.File != "" {
			all = append(all, findings("secret "+x.Ref, fileguard.Kept(x.File))...)
		}
	}
	return all
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
