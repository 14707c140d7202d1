package queue

import "strings"

func fieldNames(fields []Field) string {
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.Name
	}
	return strings.Join(names, ", ")
}

// brief shortens a text that an error message repeats.
func brief(s string) string {
	if r := []rune(s); len(r) > 32 {
		s = string(r[:32]) + "…"
	}
	return Clean(s).String()
}

// Nearest returns the candidate that s most likely means: one that begins with s or with which s
// begins, or one that differs in at most two letters; "" if none is close.
func Nearest(s string, candidates []string) string {
	s = strings.ToLower(s)
	if len(s) > 64 { // longer than any field or value
		return ""
	}
	best, bestDistance := "", 3
	for _, c := range candidates {
		low := strings.ToLower(c)
		d := editDistance(s, low)
		if len(s) > 1 && (strings.HasPrefix(low, s) || strings.HasPrefix(s, low)) {
			d = min(d, 1)
		}
		if d < bestDistance && d < len(low) {
			best, bestDistance = c, d
		}
	}
	return best
}

// editDistance counts insertions, deletions and replacements of bytes.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
