package main

// This file looks at the files that decide what runs and what is known: the
// configuration, what the driver reads, handlers and signing secrets.

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/qtop/qtop/config"
	"github.com/qtop/qtop/pgclient"
	"github.com/qtop/qtop/pgclient/fileguard"
	"github.com/qtop/qtop/pgclient/inspect"
	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/pgclient/queue/secrecy"
	"github.com/qtop/qtop/workerhost/sender"
)

// fileFinding is one of a file with a use.
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

// refused is an error of those that are not to be lived with.
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

// guarded judges the files that every verb reads: the configuration and those of
// the driver.
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
		if text, err := os.ReadFile(p); err == nil && strings.Contains(string(text), "password") {
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

// hostFiles judges what a worker host runs and signs with.
func (a *app) hostFiles() (all []fileFinding) {
	for _, h := range a.settings.Handlers {
		if len(h.Command) == 0 {
			continue
		}
		if path, err := exec.LookPath(h.Command[0]); err == nil {
			all = append(all, findings("handler of "+h.Kind, fileguard.Command(path, h.Command[1:]))...)
		}
	}
	for _, s := range a.settings.Delivery.Secrets {
		if s.File != "" {
			all = append(all, findings("secret "+s.Ref, fileguard.Kept(s.File))...)
		}
	}
	return all
}

// fileFindings is both, for the doctor, and what this machine's secrets lack.
func (a *app) fileFindings() (all []finding) {
	for _, f := range append(a.files, a.hostFiles()...) {
		all = append(all, finding{"note", "files", queue.Clean(secrecy.Mask(f.What + " (" + f.use + ")")), f.Do})
	}
	secrets, err := sender.NewSecrets(secretSources(a.settings.Delivery.Secrets))
	if err != nil {
		return append(all, finding{"bad", "signing", queue.Said(err), "correct delivery.secrets"})
	}
	for _, ref := range secrets.Refs() {
		if _, fault := secrets.Look(ref); fault != nil {
			all = append(all, finding{"note", "signing", queue.Clean(secrecy.Mask("on this machine: " + fault.What)), fault.Do})
		} else if weak := secrets.Weak(ref); weak != nil {
			all = append(all, finding{"note", "signing", queue.Clean(secrecy.Mask(weak.What)), weak.Do})
		}
	}
	if len(all) == 0 {
		return []finding{{"ok", "files", queue.Clean("nobody else may change what decides what runs"), ""}}
	}
	return all
}

// signingFindings names what live hosts cannot sign.
func signingFindings(ctx context.Context, c *pgclient.Client) (all []finding) {
	faults, hosts, err := inspect.SigningFaults(ctx, c)
	if err != nil {
		return []finding{{"bad", "signing", queue.Said(err), ""}}
	}
	of := map[int64]map[string]bool{}
	for _, f := range faults {
		if of[f.Subscription] == nil {
			of[f.Subscription] = map[string]bool{}
		}
		of[f.Subscription][f.Host.String()] = true
	}
	for _, f := range faults {
		state := "note" // another host has the secret
		if len(of[f.Subscription]) >= hosts {
			state = "bad"
		}
		all = append(all, finding{state, "signing", queue.Clean(fmt.Sprintf("host %s sends nothing of subscription %d: %s", f.Host, f.Subscription, f.What)), f.Do.String()})
	}
	if len(all) == 0 {
		return []finding{{"ok", "signing", queue.Clean("every live host can sign what it sends"), ""}}
	}
	return all
}
