package main

// Peers that run in node.

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// nodePeer is a folder with an npm package and our script for it, or the error why there is none.
type nodePeer struct {
	dir, script string
	node        string // its version
	err         error
}

func (p *nodePeer) remove() {
	if p != nil && p.dir != "" {
		_ = os.RemoveAll(p.dir)
	}
}

// installNode installs the package into a temporary folder.
func installNode(ctx context.Context, name, version, script string, text []byte) *nodePeer {
	p := &nodePeer{}
	out, err := exec.CommandContext(ctx, "node", "-v").Output()
	if err != nil {
		p.err = notRun{"no node"}
		return p
	}
	p.node = strings.TrimSpace(string(out))
	if _, err := exec.LookPath("npm"); err != nil {
		p.err = notRun{"no npm"}
		return p
	}
	if p.dir, err = os.MkdirTemp("", "peerbench-"+name+"-"); err != nil {
		p.err = err
		return p
	}
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	install := exec.CommandContext(ctx, "npm", "install", "--prefix", p.dir, "--no-audit", "--no-fund", "--loglevel=error", name+"@"+version)
	if out, err := install.CombinedOutput(); err != nil {
		p.err = notRun{fmt.Sprintf("npm install: %v: %s", err, strings.TrimSpace(string(out)))}
		return p
	}
	p.script = filepath.Join(p.dir, script)
	p.err = os.WriteFile(p.script, text, 0o600)
	return p
}

// command is the script with a login of a database behind a socket.
func (p *nodePeer) command(ctx context.Context, socket, login, database string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "node", append([]string{p.script}, args...)...)
	cmd.Env = append(os.Environ(), "BENCH_HOST="+socket, "BENCH_USER="+login, "BENCH_DATABASE="+database)
	return cmd
}
