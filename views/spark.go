package views

// Draws small curves. A bucket of 0 is blank instead of the lowest bar, so that it differs from a
// small value.

import (
	"strings"

	"github.com/qtop/qtop/views/theme"
)

// Spark returns one line of bars for the last w values, scaled to the greatest of them.
func Spark(th theme.Theme, values []int64, w int) string {
	values = last(values, w)
	top := greatest(values)
	var b strings.Builder
	b.WriteString(theme.Blank(w - len(values)))
	for _, v := range values {
		b.WriteString(bar(th, v, top, len(th.G.Spark)))
	}
	return b.String()
}

// Chart is like Spark, with bars that are h lines high.
func Chart(th theme.Theme, values []int64, w, h int) []string {
	values = last(values, w)
	top, levels := greatest(values), len(th.G.Spark)
	out := make([]string, h)
	for line := range h {
		floor := int64((h - 1 - line) * levels) // the height of the lines below this one, in steps
		var b strings.Builder
		b.WriteString(theme.Blank(w - len(values)))
		for _, v := range values {
			steps := int64(0)
			if top > 0 && v > 0 {
				steps = max(1, scale(v, top, int64(h*levels)))
			}
			switch {
			case steps <= floor:
				b.WriteString(" ")
			case steps >= floor+int64(levels):
				b.WriteString(th.G.Spark[levels-1])
			default:
				b.WriteString(th.G.Spark[steps-floor-1])
			}
		}
		out[line] = b.String()
	}
	return out
}

// scale returns the height of a bar in steps: v ÷ top × steps, computed
// without overflow.
func scale(v, top, steps int64) int64 {
	return int64(float64(v) / float64(top) * float64(steps))
}

func bar(th theme.Theme, v, top int64, levels int) string {
	if v <= 0 || top <= 0 {
		return " "
	}
	return th.G.Spark[min(max(scale(v, top, int64(levels)), 1), int64(levels))-1]
}

func last(v []int64, n int) []int64 {
	if n < 0 {
		n = 0
	}
	if len(v) > n {
		return v[len(v)-n:]
	}
	return v
}

func greatest(v []int64) int64 {
	var top int64
	for _, x := range v {
		top = max(top, x)
	}
	return top
}
