package pgclient

import (
	"encoding/json"
	"os"
	"os/user"
	"strings"

	"github.com/qtop/qtop/pgclient/queue"
)

// noLogin is the loginuid of a process that does not descend from a login session (unsigned -1).
const noLogin = "4294967295"

// origin returns what this program reports to the database about who runs it, as JSON, for the
// audit: the login that the kernel remembers across su and sudo, the user of the process, and the
// environment variables of sudo and sshd. Another program with the same password may claim
// anything; the audit keeps these claims separate from what the session proves.
func origin() string {
	said := map[string]string{}
	add := func(key, value string) {
		if value = strings.TrimSpace(value); value != "" {
			runes := []rune(queue.Clean(value).String())
			said[key] = string(runes[:min(len(runes), 100)])
		}
	}
	if uid, err := os.ReadFile("/proc/self/loginuid"); err == nil && strings.TrimSpace(string(uid)) != noLogin {
		add("loginuid", string(uid))
	}
	if u, err := user.Current(); err == nil {
		add("os_user", u.Username)
	}
	add("sudo_user", os.Getenv("SUDO_USER"))
	add("ssh_connection", os.Getenv("SSH_CONNECTION"))
	if len(said) == 0 {
		return ""
	}
	text, err := json.Marshal(said)
	if err != nil {
		return ""
	}
	return string(text)
}
