// The one line that a user without PostgreSQL gets as an error.

package embedded

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
)

// missing returns the error of Locate when it finds no programs: what was not found, why it could
// not be fetched, and the command that installs PostgreSQL on this machine.
func missing(major int, fetch, trouble error) error {
	why := ""
	if trouble != nil {
		why = fmt.Sprintf(" (found but not usable: %s)", oneLine(trouble))
	}
	return fmt.Errorf("no PostgreSQL %s found on this machine%s and %s; install it with: %s", wanted(major), why, oneLine(fetch), installCommand(major))
}

// installCommand returns the command that installs PostgreSQL on this system; major 0 means the
// version that the system offers.
func installCommand(major int) string {
	if runtime.GOOS == "darwin" {
		if major == 0 {
			major = 17
		}
		return fmt.Sprintf("brew install postgresql@%d", major)
	}
	b, err := os.ReadFile("/etc/os-release")
	if err != nil {
		return manual
	}
	command := packageCommand(string(b), major)
	if os.Geteuid() != 0 && command != manual {
		if _, err := exec.LookPath("sudo"); err == nil {
			command = "sudo " + command
		}
	}
	return command
}

const manual = "see https://www.postgresql.org/download/ or name its programs in QTOP_PG_BIN"

// packageCommand returns the install command for the system that an os-release file describes.
func packageCommand(release string, major int) string {
	ids := " "
	for line := range strings.Lines(release) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		if key == "ID" || key == "ID_LIKE" {
			ids += strings.Trim(value, `"'`) + " "
		}
	}
	is := func(names ...string) bool {
		for _, name := range names {
			if strings.Contains(ids, " "+name+" ") {
				return true
			}
		}
		return false
	}
	numbered := func(format string) string {
		if major == 0 {
			return strings.ReplaceAll(format, "%d", "")
		}
		return strings.ReplaceAll(format, "%d", fmt.Sprint(major))
	}
	switch {
	case is("debian", "ubuntu") && major == 0:
		return "apt-get install -y postgresql"
	case is("debian", "ubuntu"):
		return numbered("apt-get install -y postgresql-%d")
	case is("alpine"):
		return numbered("apk add postgresql%d")
	case is("fedora", "rhel", "centos"):
		return "dnf install -y postgresql-server"
	case is("suse", "opensuse", "sles"):
		return numbered("zypper install -y postgresql%d-server")
	case is("arch"):
		return "pacman -S --noconfirm postgresql"
	}
	return manual
}

// oneLine flattens a joined error.
func oneLine(err error) string {
	return strings.ReplaceAll(strings.TrimSpace(err.Error()), "\n", "; ")
}
