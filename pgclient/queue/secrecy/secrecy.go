// Package secrecy is the one place that knows the secrets of this process and
// takes them out of text: whatever a driver, a resolver or a parser says passes
// Mask before it is shown, logged or stored.
//
// A misread connection string takes a password apart, so a secret is known by all
// its pieces of six bytes, in its raw, percent-encoded, escaped and Base64 forms
// and in either case: of what is masked, never more than five bytes in a row are
// seen. A secret of four or five bytes is masked whole; a shorter one is none, and
// neither are the words that every connection has, such as postgres.
package secrecy

import (
	"encoding/base64"
	"net/url"
	"strconv"
	"strings"
	"sync"
)

const (
	// Mark stands for what was taken out.
	Mark = "****"
	// pieceLen in bytes: the shortest piece of a longer secret that is masked.
	pieceLen = 6
	// leastLen in bytes: what is shorter would mask half of every text.
	leastLen = 4
	// mostLen in bytes of one secret that are known.
	mostLen = 16 << 10
)

// common is what stands in text about any connection: pieces of it give nothing
// away, and without them no message could be read.
const common = "postgresql://postgres:postgres@localhost:5432/postgres password=passfile sslpassword application_name whsec_ " +
	"sslmode=verify-full qtop migrate doctor connection"

// Keeper knows secrets. The zero value knows none.
type Keeper struct {
	mu     sync.RWMutex
	known  map[string]bool
	pieces map[uint64]bool
	short  []string
}

// The keeper of this process: what a process knows is not divided.
var process Keeper //nolint:gochecknoglobals // one per process is the point of it

// Know takes secrets into the keeper of this process.
func Know(secrets ...string) { process.Know(secrets...) }

// Mask is text without the secrets of this process.
func Mask(text string) string { return process.Mask(text) }

// Forget empties the keeper of this process; a test that makes up secrets by the
// thousand would slow down those that follow.
func Forget() {
	process.mu.Lock()
	defer process.mu.Unlock()
	process.known, process.pieces, process.short = nil, nil, nil
}

// Know takes secrets in; those that are too short or too common are left out.
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

// forms are the ways in which a secret stands in text.
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

// Mask is text with the mark in place of every piece of a secret.
func (k *Keeper) Mask(text string) string {
	k.mu.RLock()
	defer k.mu.RUnlock()
	if len(k.pieces) == 0 && len(k.short) == 0 {
		return text
	}
	low := lower(text)
	var out strings.Builder
	from, to, shown := 0, 0, 0 // the run under way; shown: all before it is out
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

// piece packs six bytes.
func piece(s string) uint64 {
	return uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 | uint64(s[4])<<32 | uint64(s[5])<<40
}

// lower folds ASCII alone: the length stays.
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
