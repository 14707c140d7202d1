package embedded

import (
	"os/exec"
	"syscall"
)

// inMountNamespace lets the command run in a mount namespace of its process alone, so that its
// mounts are visible nowhere else.
func inMountNamespace(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
}

// hidePostgres covers every folder of server programs with an empty one.
func hidePostgres() error {
	if err := syscall.Mount("none", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return err
	}
	for _, p := range candidates() {
		if err := syscall.Mount("tmpfs", p.dir, "tmpfs", 0, ""); err != nil {
			return err
		}
	}
	return nil
}
