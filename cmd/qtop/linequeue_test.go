package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// unread is a writer that takes nothing until it is opened, as a pipe that nobody reads.
type unread struct {
	open chan struct{}
	lockedBuffer
}

func (g *unread) Write(p []byte) (int, error) {
	<-g.open
	return g.lockedBuffer.Write(p)
}

func started(w io.Writer) *lineQueue {
	q := &lineQueue{w: w}
	q.start(func(w io.Writer, n int) { _, _ = fmt.Fprintf(w, "missing %d\n", n) })
	return q
}

// Lines for which there is no room are left out. As soon as the reader reads again, one line says how
// many, in the place of the gap.
func TestLinesThatNobodyReads(t *testing.T) {
	t.Parallel()
	g := &unread{open: make(chan struct{})}
	q := started(g)
	line := strings.Repeat("x", 1023) + "\n"
	_, _ = io.WriteString(q, "first\n")
	require.Eventually(t, func() bool { // its write waits for the reader
		q.mu.Lock()
		defer q.mu.Unlock()
		return q.size == 0
	}, patience, time.Millisecond)
	all := 3 * mostWaiting / len(line)
	for range all { // none of them waits
		n, err := io.WriteString(q, line)
		require.NoError(t, err)
		require.Equal(t, len(line), n)
	}
	stuck := started(&unread{open: make(chan struct{})})
	_, _ = io.WriteString(stuck, "never\n")
	require.False(t, stuck.end(time.Millisecond))
	close(g.open)
	require.Eventually(t, func() bool { return strings.Contains(g.text(), "missing") }, patience, time.Millisecond)
	_, _ = io.WriteString(q, "after\n")
	require.True(t, q.end(patience))
	_, _ = io.WriteString(q, "too late\n")
	text := g.text()
	there := strings.Count(text, line)
	require.Equal(t, mostWaiting/len(line), there)
	require.Equal(t, fmt.Sprintf("first\nmissing %d\nafter\n", all-there), strings.ReplaceAll(text, line, ""))
}

// disk is a writer that takes no more than room bytes.
type disk struct {
	room int
	bytes.Buffer
}

func (d *disk) Write(p []byte) (int, error) {
	n := min(d.room, len(p))
	d.room -= n
	_, _ = d.Buffer.Write(p[:n])
	if n < len(p) {
		return n, errors.New("no space left on device")
	}
	return n, nil
}

// Lines that do not fit on the disk are counted too, and the next line does not go on the half of one.
func TestLinesOnAFullDisk(t *testing.T) {
	t.Parallel()
	d := &disk{room: 10}
	w := &lineWriter{w: d}
	for _, line := range []string{"one\n", "two two\n", "three\n"} {
		_, _ = io.WriteString(w, line)
	}
	require.Error(t, w.err)
	d.room = 100
	_, _ = io.WriteString(w, "four\n")
	require.NoError(t, w.err)
	_, _ = io.WriteString(w, "five\n")
	require.Equal(t, "one\ntwo tw\nfour\nfive\n", d.String())

	d = &disk{}
	q := started(d)
	_, _ = io.WriteString(q, "lost\n")
	q.mu.Lock()
	for !q.idle {
		q.changed.Wait()
	}
	d.room = 100
	q.mu.Unlock()
	_, _ = io.WriteString(q, "kept\n")
	require.True(t, q.end(patience))
	require.Equal(t, "kept\nmissing 1\n", d.String())
}
