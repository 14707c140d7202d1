// Package secrecy knows the secrets of this process and removes them from text. Every text from
// a driver, a resolver or a parser passes Mask before it is shown, logged or stored. Start with
// [Learn], [Know] and [Mask], which use the keeper of the process, and [Writer] for output.
//
// A parser that misreads a connection string may cut a password into pieces. So a secret is
// recognised by each piece of six bytes, in raw, percent-encoded, escaped and Base64 form, in
// upper or lower case: at most five consecutive bytes of a secret remain visible. A secret of
// four or five bytes is masked only as a whole. Shorter ones are not treated as secrets, and
// neither are the words that every connection string contains, such as postgres.
package secrecy

import (
	"encoding/base64"
	"net/url"
	"strconv"
	"strings"
	"sync"
)

const (
	// Mark replaces a secret in a text.
	Mark = "****"
	// pieceLen is the shortest piece of a longer secret that is masked, in bytes.
	pieceLen = 6
	// leastLen is the shortest secret, in bytes; masking shorter ones would mask half of every
	// text.
	leastLen = 4
	// mostLen is the largest part of one secret that is remembered, in bytes.
	mostLen = 16 << 10
)

// common is text that occurs in messages about any connection: its pieces reveal nothing, and
// masking them would make every message unreadable.
const common = "postgresql://postgres:postgres@localhost:5432/postgres password=passfile sslpassword application_name whsec_ " +
	"sslmode=verify-full qtop migrate doctor connection"

// Keeper holds secrets. The zero value holds none.
type Keeper struct {
	mu     sync.RWMutex
	known  map[string]bool
	pieces map[uint64]bool
	short  []string
	unread unread // the first file that could not be read in time
}

// process is the keeper of this process. There is one, because all parts of a process share its
// secrets.
var process Keeper // shared by the whole process on purpose

// Know adds secrets to the keeper of this process.
func Know(secrets ...string) { process.Know(secrets...) }

// Mask returns text without the secrets of this process.
func Mask(text string) string { return process.Mask(text) }

// Forget empties the keeper of this process. It is for tests: the thousands of made-up secrets of
// one test would slow down the next ones.
func Forget() {
	process.mu.Lock()
	defer process.mu.Unlock()
	process.known, process.pieces, process.short, process.unread = nil, nil, nil, unread{}
}

// Know adds secrets; those that are too short or too common are ignored.
func (k *Keeper) Know(secrets ...string) {
	for _, s := range secrets {
		s = s[:min(len(s), mostLen)]
		k.mu.RLock()
		old := k.known[s]
		k.mu.RUnlock()
		if old || len(s) < leastLen {
			continue
		}
		k.mu.Lock()
		if k.known == nil {
			k.known, k.pieces = map[string]bool{}, map[uint64]bool{}
		}
		k.known[s] = true
		for _, f := range forms(s) {
			k.add(lower(f))
		}
		k.mu.Unlock()
	}
}

func (k *Keeper) add(form string) {
	switch {
	case len(form) < leastLen:
	case len(form) < pieceLen:
		if !strings.Contains(common, form) {
			k.short = append(k.short, form)
		}
	default:
		for at := 0; at+pieceLen <= len(form); at++ {
			if p := form[at : at+pieceLen]; !strings.Contains(common, p) {
				k.pieces[piece(p)] = true
			}
		}
	}
}

// forms returns the forms in which a secret can appear in a text.
func forms(s string) []string {
	quoted := strconv.Quote(s)
	all := []string{
		s, url.QueryEscape(s), url.PathEscape(s), quoted[1 : len(quoted)-1], strings.ReplaceAll(s, `\`, ""),
		base64.StdEncoding.EncodeToString([]byte(s)), base64.URLEncoding.EncodeToString([]byte(s)),
	}
	for _, decode := range []func(string) (string, error){url.PathUnescape, url.QueryUnescape} {
		if plain, err := decode(s); err == nil {
			all = append(all, plain)
		}
	}
	return all
}

// Mask returns text with the mark in place of every piece of a secret.
func (k *Keeper) Mask(text string) string {
	k.mu.RLock()
	defer k.mu.RUnlock()
	if len(k.pieces) == 0 && len(k.short) == 0 {
		return text
	}
	low := lower(text)
	var out strings.Builder
	from, to, shown := 0, 0, 0 // the current run of secret bytes, and the end of the part that is written
	cover := func(a, b int) {
		if a > to || to == 0 {
			if to > from {
				out.WriteString(text[shown:from])
				out.WriteString(Mark)
				shown = to
			}
			from = a
		}
		to = max(to, b)
	}
	for at := range len(low) {
		if at+pieceLen <= len(low) && k.pieces[piece(low[at:at+pieceLen])] {
			cover(at, at+pieceLen)
			continue
		}
		for _, s := range k.short {
			if strings.HasPrefix(low[at:], s) {
				cover(at, at+len(s))
			}
		}
	}
	if to > from {
		out.WriteString(text[shown:from])
		out.WriteString(Mark)
		shown = to
	}
	if shown == 0 {
		return text
	}
	out.WriteString(text[shown:])
	return out.String()
}

// piece packs six bytes into an integer.
func piece(s string) uint64 {
	return uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 | uint64(s[4])<<32 | uint64(s[5])<<40
}

// lower changes A to Z only, so that the length of the text does not change.
func lower(s string) string {
	at := strings.IndexFunc(s, func(r rune) bool { return r >= 'A' && r <= 'Z' })
	if at < 0 {
		return s
	}
	b := []byte(s)
	for i := at; i < len(b); i++ {
		if b[i] >= 'A' && b[i] <= 'Z' {
			b[i] += 'a' - 'A'
		}
	}
	return string(b)
}
