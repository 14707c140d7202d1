package queue

import "unicode"

// Unsafe reports whether r must not be printed as itself: control characters (also tab and
// newline), format characters (bidi, zero-width, tags, soft hyphen, byte order mark, annotations),
// everything that Unicode lets a renderer ignore (variation selectors, fillers, joiners), line and
// paragraph separators, surrogates, noncharacters, private use (whose glyph and width are
// undefined) and blank glyphs that are not spaces.
//
// Spaces such as U+00A0 and U+3000 are safe: each occupies cells like any space.
func Unsafe(r rune) bool {
	switch {
	case r < 0x20 || r > unicode.MaxRune:
		return true
	case r < 0x7f:
		return false
	case r < 0xa0 || r == 0xad:
		return true
	case r < 0x300:
		return false
	case r&0xfffe == 0xfffe || (r >= 0xfdd0 && r <= 0xfdef): // noncharacters
		return true
	case r >= 0xfff0 && r <= 0xfff8, r >= 0xe0000 && r <= 0xe0fff: // renderers may ignore these, although they are unassigned
		return true
	case r == 0x2800, r == 0x16fe4, r == 0x1d159: // Braille blank, Khitan filler, null notehead
		return true
	}
	return unicode.In(r, unicode.Cf, unicode.Cs, unicode.Co, unicode.Zl, unicode.Zp,
		unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
}

// cluster tracks which characters share a terminal cell, closely enough to limit their number: a
// terminal measures the width of a string by clusters, so an endless cluster would count as one
// cell and fill a screen.
type cluster struct {
	last   rune // the last character; 0 before the first
	marks  int  // combining marks since the last base character
	joined int  // characters of the cluster after the first
	linked bool // the marks contain a virama, which would join a following consonant
}

func (c *cluster) add(r rune) {
	if !c.joins(r) {
		*c = cluster{last: r}
		return
	}
	c.last = r
	c.joined++
	if unicode.Is(unicode.M, r) {
		c.marks++
		c.linked = c.linked || isVirama(r)
	} else {
		c.marks, c.linked = 0, false
	}
}

// fits reports whether r may be written after the characters so far.
func (c *cluster) fits(r rune) bool {
	if !c.joins(r) {
		return true
	}
	return c.joined < maxJoined && (!unicode.Is(unicode.M, r) || c.marks < maxMarks)
}

func (c *cluster) joins(r rune) bool {
	switch {
	case unicode.Is(unicode.M, r), r == 0xff9e, r == 0xff9f: // also the halfwidth voiced sound marks
		return true
	case c.linked && unicode.Is(unicode.Lo, r):
		return true
	case isPrefix(c.last) && isPrefix(r):
		return true
	case isTone(r):
		return true
	}
	return jamoJoins(c.last, r)
}

// takesMark reports whether a combining mark may follow the last character. It may not follow a
// mark of Clean, such as ⟨9B⟩, because it would disguise that mark.
func (c *cluster) takesMark() bool {
	return c.last != 0 && c.last != '⟩' && c.last != '…' && (c.last < '␀' || c.last > '␡')
}

// takesTone reports whether a skin tone of an emoji may follow the last character, which must be a
// hand or a face. After any other character, a terminal draws a skin tone two cells wide, but its
// width would be counted as 0.
func (c *cluster) takesTone() bool { return c.last >= 0x261d && unicode.Is(unicode.So, c.last) }

// isTone reports whether r is a skin tone of an emoji.
func isTone(r rune) bool { return r >= 0x1f3fb && r <= 0x1f3ff }

// isVirama reports whether r joins two consonants of one script.
func isVirama(r rune) bool {
	switch r {
	case 0x94d, 0x9cd, 0xacd, 0xb4d, 0xc4d, 0xd4d, 0x1039, 0x17d2, 0x1a60, 0x1b44, 0x1bab,
		0xa9c0, 0xaaf6, 0x10a3f, 0x11133, 0x113d0, 0x1193e, 0x11a47, 0x11a99, 0x11f42:
		return true
	}
	return false
}

// isPrefix reports whether r joins the character that follows it.
func isPrefix(r rune) bool {
	switch r {
	case 0xd4e, 0x111c2, 0x111c3, 0x113d1, 0x1193f, 0x11941, 0x11a3a, 0x11d46, 0x11f02:
		return true
	}
	return r >= 0x11a84 && r <= 0x11a89
}

// jamoJoins reports whether two parts of a Hangul syllable share its cells.
func jamoJoins(last, r rune) bool {
	const lead, vowel, final = 1, 2, 3
	end, begin := 0, 0 // how the previous character ends, and how r begins
	switch {
	case isBetween(last, 0x1100, 0x115f), isBetween(last, 0xa960, 0xa97c):
		end = lead
	case isBetween(last, 0x1160, 0x11a7), isBetween(last, 0xd7b0, 0xd7c6):
		end = vowel
	case isBetween(last, 0x11a8, 0x11ff), isBetween(last, 0xd7cb, 0xd7fb):
		end = final
	case isBetween(last, 0xac00, 0xd7a3):
		end = final
		if (last-0xac00)%28 == 0 { // the syllable has no final consonant
			end = vowel
		}
	}
	switch {
	case isBetween(r, 0x1100, 0x115f), isBetween(r, 0xa960, 0xa97c), isBetween(r, 0xac00, 0xd7a3):
		begin = lead
	case isBetween(r, 0x1160, 0x11a7), isBetween(r, 0xd7b0, 0xd7c6):
		begin = vowel
	case isBetween(r, 0x11a8, 0x11ff), isBetween(r, 0xd7cb, 0xd7fb):
		begin = final
	}
	switch begin {
	case lead:
		return end == lead
	case vowel:
		return end == lead || end == vowel
	case final:
		return end == vowel || end == final
	}
	return false
}

func isBetween(r, from, to rune) bool { return from <= r && r <= to }
