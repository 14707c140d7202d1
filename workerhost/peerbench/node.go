package main

// Peers that run on Node.js.

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// nodePeer is a folder with an npm package and a script that uses it, or the error why the
// package is not available.
type nodePeer struct {
	dir, script string
	node        string // version of node
	err         error
}

func (p *nodePeer) remove() {
	if p != nil && p.dir != "" {
		_ = os.RemoveAll(p.dir)
	}
}

// installNode installs the npm package into a temporary folder.
func installNode(ctx context.Context, name, version, script string, text []byte) *nodePeer {
	p := &nodePeer{}
	out, err := exec.CommandContext(ctx, "node", "-v").Output()
	if err != nil {
		p.err = notRun{"node is not installed"}
		return p
	}
	p.node = strings.TrimSpace(string(out))
	if _, err := exec.LookPath("npm"); err != nil {
		p.err = notRun{"npm is not installed"}
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

// command returns a command that runs the script as login on a database, through the socket
// folder of the server.
func (p *nodePeer) command(ctx context.Context, socket, login, database string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "node", append([]string{p.script}, args...)...)
	cmd.Env = append(os.Environ(), "BENCH_HOST="+socket, "BENCH_USER="+login, "BENCH_DATABASE="+database)
	return cmd
}
