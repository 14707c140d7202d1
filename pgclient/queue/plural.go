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

// Counted is a name, and the number of rows that have it.
type Counted struct {
	Name string
	N    int64
}

// namesShown is how many names Names writes.
const namesShown = 4

// Names joins names, the most frequent first. Each has its number of rows, unless there is only one
// name or each name has one row. Of more than four names, the rest is only counted.
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
