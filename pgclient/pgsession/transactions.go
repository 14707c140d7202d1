package pgsession

import (
	"encoding/binary"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5/pgproto3"
)

// eachTransaction makes every transaction of a connection begin with settings, whatever starts the
// transaction: a single statement, a pipeline, or BEGIN. It filters the bytes between pgx and the
// network, so that no caller can bypass it:
//
//  1. If the server is outside of a transaction, a statement that sets all settings for the
//     transaction is sent before the first message, or directly after BEGIN, without waiting
//     for an answer in between.
//  2. The answer to that statement is removed from the bytes that the server sends. An error is
//     not removed: pgx takes it for the answer to the statement that was to follow.
func eachTransaction(settings map[string]string) func(r io.Reader, w io.Writer) *pgproto3.Frontend {
	sql := setSQL(settings)
	var extended []byte
	for _, m := range []pgproto3.FrontendMessage{&pgproto3.Parse{Query: sql}, &pgproto3.Bind{}, &pgproto3.Execute{}} {
		extended, _ = m.Encode(extended) // encoding these fixed messages cannot fail
	}
	return func(r io.Reader, w io.Writer) *pgproto3.Frontend {
		s := &session{sql: sql, extended: extended}
		return pgproto3.NewFrontend(&answers{session: s, from: r}, &requests{session: s, to: w})
	}
}

// setSQL returns the statement that sets all settings for the current transaction.
func setSQL(settings map[string]string) string {
	var calls []string
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		calls = append(calls, "pg_catalog.set_config("+literal(name)+", "+literal(settings[name])+", true)")
	}
	return "SELECT " + strings.Join(calls, ", ")
}

// literal returns an SQL literal that does not depend on standard_conforming_strings.
func literal(s string) string {
	s = strings.ReplaceAll(s, "'", "''")
	if strings.Contains(s, `\`) {
		return " E'" + strings.ReplaceAll(s, `\`, `\\`) + "'"
	}
	return "'" + s + "'"
}

// session is the state that both directions of a connection share.
type session struct {
	sql      string
	extended []byte

	mu     sync.Mutex
	status byte     // of the last ReadyForQuery; 0 before the first
	sent   []string // for each request without a complete answer, the messages to remove from its answer
}

// The messages of the server that answer the added statement with the settings, by their type
// bytes in order; they are removed from the answer. A lower-case letter is a message that answers
// the caller's own BEGIN and is passed on.
const (
	inFront     = "TDC"  // settings before a simple query
	behindBegin = "cTDC" // settings directly after BEGIN, in a simple query
	inPipeline  = "12DC" // settings as Parse, Bind and Execute
)

// requests is the writer to which pgx sends its messages. Each Write has whole messages.
type requests struct {
	*session
	to   io.Writer
	open bool // messages were sent, but not yet the Sync after them
}

// Write implements io.Writer.
func (r *requests) Write(p []byte) (int, error) {
	out, err := r.rewrite(p)
	if err != nil {
		return 0, err
	}
	n, err := r.to.Write(out)
	switch {
	case err == nil:
		return len(p), nil
	case n > 0:
		return 1, err // not 0, because the server may have received a part
	}
	return 0, err
}

func (r *requests) rewrite(p []byte) ([]byte, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.status == 0 {
		return p, nil // authentication is not finished
	}
	outside := r.status == 'I'
	out := make([]byte, 0, len(p)+len(r.extended)+len(r.sql)+8)
	for len(p) > 0 {
		if len(p) < 5 || int64(binary.BigEndian.Uint32(p[1:])) > int64(len(p)-1) {
			return nil, errors.New("a message was written only in part")
		}
		message := p[:1+binary.BigEndian.Uint32(p[1:])]
		p = p[len(message):]
		switch kind := message[0]; kind {
		case 'Q':
			answer := ""
			if outside {
				message, answer = r.simple(message)
			}
			r.sent = append(r.sent, answer)
		case 'P', 'B', 'D', 'E', 'C':
			if r.open {
				break
			}
			r.open = true
			answer := ""
			if outside {
				out, answer = append(out, r.extended...), inPipeline
			}
			r.sent = append(r.sent, answer)
		case 'S':
			if !r.open {
				r.sent = append(r.sent, "")
			}
			r.open = false
		}
		out = append(out, message...)
	}
	return out, nil
}

// simple adds the statement with the settings to a simple query, and returns the messages to remove
// from the answer.
func (r *requests) simple(message []byte) ([]byte, string) {
	text := strings.TrimRight(string(message[5:len(message)-1]), "; \t\r\n")
	answer := inFront
	if word, _, _ := strings.Cut(text, " "); (strings.EqualFold(word, "begin") || strings.EqualFold(word, "start")) && !strings.Contains(text, ";") {
		text, answer = text+"; "+r.sql, behindBegin
	} else {
		text = r.sql + "; " + text
	}
	out, _ := (&pgproto3.Query{String: text}).Encode(nil) // encoding cannot fail: the text came from a message of the same kind
	return out, answer
}

// answers is the reader from which pgx receives the server's messages.
type answers struct {
	*session
	from io.Reader
	buf  [16 << 10]byte
	head []byte // the bytes of the next message's header that have arrived
	left int    // how many bytes of the current message are still to come
	drop bool   // whether the current message is removed
	out  []byte
}

// Read implements io.Reader.
func (a *answers) Read(p []byte) (int, error) {
	for len(a.out) == 0 {
		n, err := a.from.Read(a.buf[:])
		a.take(a.buf[:n])
		if err != nil && len(a.out) == 0 {
			return 0, err
		}
	}
	n := copy(p, a.out)
	if a.out = a.out[n:]; len(a.out) == 0 {
		a.out = nil
	}
	return n, nil
}

// take appends the bytes that pgx is to receive, and drops the removed messages.
func (a *answers) take(b []byte) {
	for len(b) > 0 {
		if a.left > 0 {
			n := min(a.left, len(b))
			if !a.drop {
				a.out = append(a.out, b[:n]...)
			}
			a.left, b = a.left-n, b[n:]
			continue
		}
		a.head, b = append(a.head, b[0]), b[1:]
		if len(a.head) < 5 || a.head[0] == 'Z' && len(a.head) < 6 {
			continue
		}
		a.drop = a.remove(a.head)
		if !a.drop {
			a.out = append(a.out, a.head...)
		}
		a.left = int(binary.BigEndian.Uint32(a.head[1:])) + 1 - len(a.head)
		a.head = a.head[:0]
	}
}

// remove reports whether a message belongs to the answer to the settings.
func (a *answers) remove(head []byte) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	kind := head[0]
	if kind == 'Z' {
		if a.status != 0 && len(a.sent) > 0 {
			a.sent = a.sent[1:]
		}
		a.status = head[5]
		return false
	}
	if len(a.sent) == 0 || a.sent[0] == "" {
		return false
	}
	switch want := a.sent[0][0]; {
	case kind == 'N', kind == 'A', kind == 'S': // notices, notifications and parameter changes may arrive at any time
		return false
	case kind == want:
		a.sent[0] = a.sent[0][1:]
		return true
	case want >= 'a' && kind == want-'a'+'A':
		a.sent[0] = a.sent[0][1:]
		return false
	}
	a.sent[0] = "" // an error: nothing more is removed from this answer
	return false
}
