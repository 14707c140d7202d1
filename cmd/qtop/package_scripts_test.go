package main

// The scripts of the packages on machines that the trial of .ci/package does not have.

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// machinePath matches the beginning of a path that a script reads or changes.
var machinePath = regexp.MustCompile(`(?m)(^|[^\w])/(etc|run|usr/share|var)/`)

// Called as dpkg and rpm do, each script ends well and calls what it should. Its paths are below a folder of the
// test, and what changes users, groups and units is a stub.
func TestPackageScripts(t *testing.T) {
	t.Parallel()
	const ours = "echo qtop:x:990:990:qtop worker hosts:/nonexistent:/usr/sbin/nologin"
	group := func(members string) string { return `[ "$1" = group ] && echo qtop:x:990:` + members + " || " + ours }
	const noBus = "echo 'Failed to connect to bus' >&2; exit 1"
	for _, x := range []struct {
		name, call string
		stubs      map[string]string // what a program does; by default nothing
		files      []string          // that are there, besides what every case has
		calls, not []string
		says       string
		left, gone []string // files that are there, and that are not, after it
	}{
		{name: "first installation", call: "postinstall configure ''", calls: []string{"systemd-sysusers qtop.conf", "chgrp qtop ETC/qtop/config.yaml"}, left: []string{"etc/qtop/config.yaml"}},
		{name: "first installation beside secrets", call: "postinstall configure ''", files: []string{"etc/qtop/main.env"}, calls: []string{"chgrp qtop ETC/qtop/config.yaml"}, left: []string{"etc/qtop/config.yaml"}},
		{name: "the folder was deleted before", call: "postinstall configure 0.2.0", stubs: map[string]string{"stat": "echo root:root"},
			calls: []string{"chgrp qtop ETC/qtop\n", "chgrp qtop ETC/qtop/config.yaml"}, left: []string{"etc/qtop/config.yaml"}},
		{name: "the folder is on a disk that is away", call: "postinstall configure 0.2.0\nrm -r /etc/qtop", stubs: map[string]string{"stat": "exit 1"}, not: []string{"chgrp"}},
		{name: "settings without the file", call: "postinstall configure 0.2.0", stubs: map[string]string{"stat": "echo root:qtop"},
			files: []string{"etc/qtop/main.env"}, not: []string{"chgrp"}, gone: []string{"etc/qtop/config.yaml"}},
		{name: "upgrade", call: "postinstall configure 0.2.0", stubs: map[string]string{"stat": "echo root:ops"}, files: []string{"etc/qtop/config.yaml"}, not: []string{"chgrp"}},
		{name: "upgrade by rpm", call: "postinstall 2", stubs: map[string]string{"stat": "echo root:root"}, files: []string{"etc/qtop/config.yaml"}, calls: []string{"chgrp qtop ETC/qtop\n"}},
		{name: "installation without a bus", call: "postinstall configure ''", stubs: map[string]string{"systemctl": noBus}, calls: []string{"systemctl daemon-reload"}},
		{name: "removal without a bus", call: "preremove remove", stubs: map[string]string{"systemctl": noBus}, calls: []string{"systemctl stop"}},
		{name: "after a removal without a bus", call: "postremove remove", stubs: map[string]string{"systemctl": noBus}, calls: []string{"systemctl daemon-reload"}, left: []string{"usr/share/qtop/config.yaml"}},
		{name: "purge", call: "postremove purge", stubs: map[string]string{"getent": group("")}, calls: []string{"userdel qtop", "groupdel qtop"}, gone: []string{"etc/qtop"}},
		{name: "purge where userdel took the group", call: "postremove purge", stubs: map[string]string{"getent": `[ "$1" = passwd ] && ` + ours}, calls: []string{"userdel qtop"}, not: []string{"groupdel"}},
		{name: "purge with others in the group", call: "postremove purge", stubs: map[string]string{"getent": group("deploy")}, calls: []string{"userdel qtop"}, not: []string{"groupdel"}},
		{name: "purge with a person of this name", call: "postremove purge", stubs: map[string]string{"getent": "echo qtop:x:1000:1000:Quentin Top:/home/qtop:/bin/bash"}, not: []string{"userdel", "groupdel"}},
		{name: "purge without a user", call: "postremove purge", stubs: map[string]string{"getent": "exit 2"}, not: []string{"userdel", "groupdel"}},
		{name: "purge while a process of the user runs", call: "postremove purge",
			stubs: map[string]string{"getent": group(""), "userdel": "echo 'userdel: user qtop is currently used by process 7' >&2; exit 8"}, not: []string{"groupdel"}, says: "the user qtop stays"},
	} {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			for _, name := range append(x.files, "usr/share/qtop/config.yaml", "etc/qtop/", "run/systemd/system/") {
				path := filepath.Join(root, name)
				if strings.HasSuffix(name, "/") {
					require.NoError(t, os.MkdirAll(path, 0o755)) //nolint:gosec // the usual mode of folders
					continue
				}
				require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755)) //nolint:gosec // as above
				require.NoError(t, os.WriteFile(path, nil, 0o600))
			}
			bin := filepath.Join(root, "bin")
			require.NoError(t, os.Mkdir(bin, 0o755)) //nolint:gosec // as above
			for _, name := range strings.Fields("systemctl systemd-sysusers getent userdel groupdel chgrp stat dpkg dpkg-query") {
				stub := fmt.Sprintf("#!/bin/sh\necho \"%s $*\" >>%s/calls\n%s\n", name, root, x.stubs[name])
				require.NoError(t, os.WriteFile(filepath.Join(bin, name), []byte(stub), 0o755)) //nolint:gosec // a program
			}
			name, arguments, _ := strings.Cut(x.call, " ")
			text, err := os.ReadFile("../../.ci/package/scripts/" + name + ".sh")
			require.NoError(t, err)
			script := machinePath.ReplaceAllString("set -- "+arguments+"\n"+string(text), "${1}"+root+"/$2/")
			require.NotRegexp(t, machinePath, strings.ReplaceAll(script, root, "ROOT"))
			cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", script)
			cmd.Env = []string{"PATH=" + bin + ":/usr/bin:/bin"}
			said, err := cmd.CombinedOutput()
			require.NoError(t, err, "%s", said)
			require.Contains(t, string(said), x.says)
			calls, _ := os.ReadFile(filepath.Join(root, "calls"))
			made := strings.ReplaceAll(string(calls), root+"/etc", "ETC")
			for _, call := range x.calls {
				require.Contains(t, made, call)
			}
			for _, call := range x.not {
				require.NotContains(t, made, call)
			}
			for _, file := range x.left {
				require.FileExists(t, filepath.Join(root, file))
			}
			for _, file := range x.gone {
				_, err := os.Lstat(filepath.Join(root, file))
				require.ErrorIs(t, err, os.ErrNotExist)
			}
		})
	}
}
