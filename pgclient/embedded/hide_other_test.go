//go:build unix && !linux

package embedded

import (
	"errors"
	"os/exec"
)

func inMountNamespace(*exec.Cmd) {}

func hidePostgres() error { return errors.New("only Linux can") }
