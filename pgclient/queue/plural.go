package queue

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Plural returns a number with its noun: 1 job, 2 jobs.
func Plural[N int | int32 | int64](n N, one, many string) string {
	return strconv.FormatInt(int64(n), 10) + " " + Choose(n == 1, one, many)
}

// Counted is a name and how many rows have it.
type Counted struct {
	Name string
	N    int64
}

// namesShown is how many names a line has.
const namesShown = 4

// Names joins names, the most frequent first, each with its number if there are several names and not all are single;
// more than four are only counted.
func Names(all []Counted) string {
	all = slices.Clone(all)
	slices.SortStableFunc(all, func(a, b Counted) int { return int(b.N - a.N) })
	counts := len(all) > 1 && all[0].N > 1
	var out []string
	for i, x := range all {
		if i == namesShown {
			out = append(out, fmt.Sprintf("%d more", len(all)-i))
			break
		}
		out = append(out, x.Name+Choose(counts, fmt.Sprintf(" (%d)", x.N), ""))
	}
	return strings.Join(out, ", ")
}
