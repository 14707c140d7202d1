package queue

// The rules of cleaning depend only on the text that was written so far, never on the raw text, so
// that cleaning a cleaned text changes nothing.

import (
	"strconv"
	"unicode"
	"unicode/utf8"
)

const (
	textLimit = 64 << 10 // bytes, both of the raw text and of the cleaned one
	tailRoom  = 32       // bytes; holds "…(+N bytes)" with any int64
	maxMarks  = 4        // combining marks on one character; Hebrew with cantillation needs 4
	maxJoined = 16       // further characters in one cluster; Indic conjuncts need about 8
)

// plain reports whether raw is printable ASCII that is short enough to be kept whole.
func plain(raw string) bool {
	if len(raw) > textLimit {
		return false
	}
	for i := range len(raw) {
		if raw[i] < 0x20 || raw[i] > 0x7e {
			return false
		}
	}
	return true
}

// keep returns the longest start of s of at most n bytes that does not split a character.
func keep(s string, n int) string {
	for i := 0; i < utf8.UTFMax-1 && n > 0 && !utf8.RuneStart(s[n]); i++ {
		n--
	}
	return s[:n]
}

func tail(bytes int) string { return "…(+" + strconv.Itoa(bytes) + " bytes)" }

// cleaner writes the safe form of one value.
type cleaner struct {
	out []byte
	cluster
}

// clean returns the safe form of raw. If it must cut, it cuts so early that the tail "…(+N
// bytes)" still fits into textLimit; otherwise cleaning the result again would cut the tail.
func (c *cleaner) clean(raw string) string {
	kept := raw
	if len(raw) > textLimit {
		kept = keep(raw, textLimit)
	}
	c.out = make([]byte, 0, len(kept)+tailRoom)
	in, cutIn, cutOut := 0, 0, 0
	for {
		if len(c.out) <= textLimit-tailRoom {
			cutIn, cutOut = in, len(c.out)
		}
		if in == len(kept) || len(c.out) > textLimit {
			break
		}
		in += c.step(kept[in:])
	}
	if len(kept) == len(raw) && len(c.out) <= textLimit {
		return string(c.out)
	}
	return string(c.out[:cutOut]) + tail(len(raw)-cutIn)
}

// step writes the first character of s and returns its length in bytes. If too many characters are
// stacked on the previous one, step leaves out several of them at once.
func (c *cleaner) step(s string) int {
	r, size := utf8.DecodeRuneInString(s)
	switch {
	case r == utf8.RuneError && size == 1:
		c.mark("⟨x" + hex(rune(s[0]), 2) + "⟩")
		return 1
	case Unsafe(r):
		c.mark(markOf(r))
		return size
	case isTone(r) && !c.takesTone():
		c.mark(markOf(r))
		return size
	}
	if unicode.Is(unicode.M, r) && !c.takesMark() {
		c.write('◌')
	}
	if c.fits(r) {
		c.write(r)
		return size
	}
	// Only characters that join the same cluster are left out; the copy of the cluster finds where
	// they end.
	pile, count := c.cluster, 0
	for used := 0; ; {
		pile.add(r)
		count++
		used += size
		r, size = utf8.DecodeRuneInString(s[used:])
		if size == 0 || (r == utf8.RuneError && size == 1) || Unsafe(r) || !pile.joins(r) {
			c.mark("⟨+" + strconv.Itoa(count) + "⟩")
			return used
		}
	}
}

func (c *cleaner) write(r rune) {
	c.out = utf8.AppendRune(c.out, r)
	c.add(r)
}

// mark writes a mark. A following combining character does not join it.
func (c *cleaner) mark(m string) {
	c.out = append(c.out, m...)
	last, _ := utf8.DecodeLastRuneInString(m)
	c.cluster = cluster{last: last}
}

// markOf returns the mark that replaces an unsafe character: see Text.
func markOf(r rune) string {
	switch {
	case r < 0x20:
		return string('␀' + r)
	case r == 0x7f:
		return "␡"
	case r < 0xa0:
		return "⟨" + hex(r, 2) + "⟩"
	}
	return "⟨U+" + hex(r, 4) + "⟩"
}

// hex returns r in upper-case hexadecimal with at least this many digits.
func hex(r rune, digits int) string {
	const figures = "0123456789ABCDEF"
	var b [8]byte
	i := len(b)
	for v := uint32(r); v > 0 || len(b)-i < digits; v >>= 4 {
		i--
		b[i] = figures[v&0xf]
	}
	return string(b[i:])
}
