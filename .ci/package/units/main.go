// Command units replaces systemd in .ci/package/try.sh, because a container cannot boot systemd:
// it runs the installed unit in a chroot and implements systemctl and journalctl in the chroot.
//
// `units serve ROOT` runs outside the chroot until it is killed. In the chroot ROOT the program
// is called as systemctl, which sends its arguments to the server over a socket, or as
// journalctl, which prints the output of the unit.
//
// It uses these settings of the unit file and its drop-ins: User, Environment, EnvironmentFile,
// ExecStart, ExecReload, UMask, StateDirectory, WatchdogSec, Restart=on-failure, RestartSec,
// RestartPreventExitStatus and TimeoutStopSec. It speaks sd_notify(3) with the unit. It does not
// make the sandbox of the unit.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// folder holds the sockets of the server and the journal; a path in the root directory of the
// chroot.
const folder = "/run/qtop-trial"

// answer is the output of one call of systemctl, and its exit code.
type answer struct {
	Out, Err string
	Code     int
}

func main() {
	log.SetFlags(0)
	switch {
	case filepath.Base(os.Args[0]) == "journalctl":
		text, err := os.ReadFile(folder + "/journal")
		if err != nil {
			log.Fatal(err)
		}
		_, _ = os.Stdout.Write(text)
	case filepath.Base(os.Args[0]) == "systemctl":
		a, err := ask(os.Args[1:])
		if err != nil {
			log.Fatal(err)
		}
		_, _ = io.WriteString(os.Stdout, a.Out)
		_, _ = io.WriteString(os.Stderr, a.Err)
		os.Exit(a.Code)
	case len(os.Args) == 3 && os.Args[1] == "serve":
		if err := serve(os.Args[2]); err != nil {
			log.Fatal(err)
		}
	default:
		log.Fatal("usage: units serve ROOT")
	}
}

func ask(args []string) (a answer, err error) {
	conn, err := net.Dial("unix", folder+"/control")
	if err != nil {
		return a, err
	}
	defer func() { _ = conn.Close() }()
	if err := json.NewEncoder(conn).Encode(args); err != nil {
		return a, err
	}
	return a, json.NewDecoder(conn).Decode(&a)
}

func serve(root string) error {
	dir := root + folder
	if err := os.MkdirAll(dir+"/bin", 0o755); err != nil {
		return err
	}
	if err := os.MkdirAll(root+"/run/systemd/system", 0o755); err != nil { // programs take this folder as the sign that systemd runs
		return err
	}
	journal, err := os.OpenFile(dir+"/journal", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	listener, err := net.Listen("unix", dir+"/control")
	if err != nil {
		return err
	}
	m := &manager{root: root, journal: journal, units: map[string]*unit{}}
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGTERM, syscall.SIGINT)
	go func() {
		<-end
		_ = listener.Close()
	}()
	for {
		conn, err := listener.Accept()
		if err != nil {
			break
		}
		go func() {
			defer func() { _ = conn.Close() }()
			var args []string
			if json.NewDecoder(conn).Decode(&args) == nil {
				_ = json.NewEncoder(conn).Encode(m.systemctl(args))
			}
		}()
	}
	for _, u := range m.all() {
		u.end(unix.SIGKILL)
	}
	return nil
}

// manager runs the units of one chroot.
type manager struct {
	root    string
	journal *os.File
	mu      sync.Mutex
	units   map[string]*unit
}

func (m *manager) all() (all []*unit) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, u := range m.units {
		all = append(all, u)
	}
	return all
}

// unit returns the unit with this name, which may end in .service.
func (m *manager) unit(name string) *unit {
	name = strings.TrimSuffix(name, ".service")
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.units[name] == nil {
		_, instance, _ := strings.Cut(name, "@")
		m.units[name] = &unit{manager: m, name: name, instance: instance, state: "inactive", result: "success"}
	}
	return m.units[name]
}

// matching returns the started units whose names match a pattern.
func (m *manager) matching(pattern string) (all []*unit) {
	for _, u := range m.all() {
		if ok, _ := filepath.Match(strings.TrimSuffix(pattern, ".service"), u.name); ok {
			all = append(all, u)
		}
	}
	return all
}

// systemctl runs the command that the arguments of a systemctl call name.
func (m *manager) systemctl(args []string) (a answer) {
	var words []string
	flags := map[string]string{}
	for i := 0; i < len(args); i++ {
		switch name, value, _ := strings.Cut(args[i], "="); {
		case name == "-p" || name == "-s":
			i++
			flags[name] = args[i]
		case strings.HasPrefix(name, "-"):
			flags[name] = value
		default:
			words = append(words, args[i])
		}
	}
	if _, asked := flags["--version"]; asked || len(words) == 0 {
		return m.real(args)
	}
	fail := func(err error) answer { return answer{Err: err.Error() + "\n", Code: 1} }
	name := words[len(words)-1]
	switch words[0] {
	case "daemon-reload":
	case "enable", "disable":
		if a = m.real([]string{words[0], name}); a.Code != 0 {
			return a
		}
		if _, now := flags["--now"]; !now {
			return a
		}
		if words[0] == "disable" {
			m.unit(name).end(unix.SIGTERM)
			return a
		}
		if err := m.unit(name).start(); err != nil {
			return fail(err)
		}
	case "start":
		if err := m.unit(name).start(); err != nil {
			return fail(err)
		}
	case "restart":
		all := m.matching(name)
		if !strings.ContainsAny(name, "*?[") {
			all = []*unit{m.unit(name)}
		}
		for _, u := range all {
			u.end(unix.SIGTERM)
			if err := u.start(); err != nil {
				return fail(err)
			}
		}
	case "stop":
		for _, u := range m.matching(name) {
			u.end(unix.SIGTERM)
		}
	case "reload":
		if err := m.unit(name).reload(); err != nil {
			return fail(err)
		}
	case "kill":
		if err := m.unit(name).signal(unix.SignalNum("SIG" + flags["-s"])); err != nil {
			return fail(err)
		}
	case "show":
		a.Out = m.unit(name).property(flags["-p"]) + "\n"
	case "status":
		u := m.unit(name)
		a.Out = fmt.Sprintf("%s.service\n     Active: %s\n     Status: %q\n", u.name, u.property("ActiveState"), u.property("StatusText"))
		if u.property("ActiveState") != "active" {
			a.Code = 3
		}
	case "is-active":
		a.Out = m.unit(name).property("ActiveState") + "\n"
		if a.Out != "active\n" {
			a.Code = 3
		}
	case "list-units":
		for _, u := range m.matching(name) {
			if u.property("ActiveState") == "active" {
				a.Out += u.name + ".service loaded active running\n"
			}
		}
	default:
		return fail(fmt.Errorf("systemctl %s is not known here", words[0]))
	}
	return a
}

// real calls the systemctl program in the chroot, which can enable and disable units without a
// running systemd.
func (m *manager) real(args []string) (a answer) {
	cmd := exec.Command("/usr/bin/systemctl", args...)
	cmd.Env, cmd.Dir, cmd.SysProcAttr = []string{"PATH=/usr/bin:/bin", "SYSTEMD_OFFLINE=1"}, "/", &syscall.SysProcAttr{Chroot: m.root}
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		a.Code = 1
		errs.WriteString(err.Error() + "\n")
	}
	a.Out, a.Err = out.String(), errs.String()
	return a
}
