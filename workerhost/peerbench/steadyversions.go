package main

// Which builds are measured: results of another build do not count as measured.

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
)

// neededFlag is a flag of `qtop worker` without which the host delivers nothing to the receiver.
const neededFlag = "--delivery-allow-plain-http"

// identify sets the versions of the binaries and of PgQue's file.
func (s *steadyRun) identify() error {
	for i, b := range s.binaries {
		version, err := exec.Command(b.path, "--version").CombinedOutput() //nolint:noctx // ends at once
		if err != nil {
			return usageError{fmt.Sprintf("-qtop %s: --version: %v: %s", b.path, err, bytes.TrimSpace(version))}
		}
		help, err := exec.Command(b.path, "worker", "--help").CombinedOutput() //nolint:noctx // ends at once
		if err != nil || !strings.Contains(string(help), neededFlag) {
			return usageError{fmt.Sprintf("-qtop %s: its command worker has no %s; commits from 64251590 (2026-11-24) on can be measured", b.path, neededFlag)}
		}
		sum, err := fileSum(b.path)
		if err != nil {
			return err
		}
		s.binaries[i].version = strings.TrimPrefix(strings.TrimSpace(string(version)), qtopName+" ") + ", file " + sum
	}
	if s.pgque == "" {
		return nil
	}
	text, err := os.ReadFile(s.pgque)
	if err != nil {
		return usageError{fmt.Sprintf("-pgque: %v", err)}
	}
	sum, err := fileSum(s.pgque)
	s.pgqueVersion = pgqueVersion(string(text)) + ", file " + sum
	return err
}

var pgqueVersionBody = regexp.MustCompile(`(?is)function\s+pgque\.version\(\).*?return\s+'([^']+)'`)

// pgqueVersion reads what the function version() of PgQue's SQL file returns.
func pgqueVersion(text string) string {
	if m := pgqueVersionBody.FindStringSubmatch(text); m != nil {
		return m[1]
	}
	return "of unknown version"
}

// fileSum returns the first digits of the SHA-256 sum of a file.
func fileSum(path string) (string, error) {
	text, err := os.ReadFile(path)
	sum := sha256.Sum256(text)
	return fmt.Sprintf("%x", sum[:4]), err
}
