package handler

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/qtop/qtop/pgclient/fileguard"
)

// answersWithin is how long a file system may take to open the program of a command. Starting the program would wait
// for it without end, and with it every other command: Go and the kernel start one process at a time (syscall.ForkLock,
// vfork).
const answersWithin = 2 * time.Second

// opening has the programs that are being opened. Nothing ends a call on a file, so each program has one at most.
var opening singleflight.Group

// answers returns an error if the file system of a program, or of an interpreter that it names, does not answer in
// time, or ctx ends. Other faults of the file are for the start to report.
func answers(ctx context.Context, program string) error {
	opened := opening.DoChan(program, func() (any, error) {
		openAll(program)
		return nil, nil //nolint:nilnil // that it returned says enough
	})
	limit := time.NewTimer(answersWithin)
	defer limit.Stop()
	select {
	case <-opened:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-limit.C:
		return fmt.Errorf("the file system of %s has not answered for %s: repair it, or install the program elsewhere", program, answersWithin)
	}
}

// mostInterpreters is how many interpreters Linux follows, one named by the other.
const mostInterpreters = 5

// openAll opens a program and the interpreters that "#!" names.
func openAll(program string) {
	for range mostInterpreters {
		begin, _, _ := fileguard.ReadPatiently(program, 256)
		line, _, _ := bytes.Cut(begin, []byte("\n"))
		named, script := bytes.CutPrefix(line, []byte("#!"))
		words := bytes.Fields(named)
		if !script || len(words) == 0 {
			return
		}
		program = string(words[0])
	}
}
