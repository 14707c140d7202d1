package table

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/qtop/qtop/views/theme"
)

// Short returns n in at most five cells.
func Short(n int64) string {
	f := float64(n)
	for _, u := range []struct {
		at   float64
		name string
	}{{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}} {
		if math.Abs(f) >= u.at {
			v := f / u.at
			if math.Abs(v) < 10 { // 9,990 is 9.9k: neither 9k, nor 10k, which may be a limit
				return fmt.Sprintf("%.1f%s", max(min(v, 9.9), -9.9), u.name)
			}
			return fmt.Sprintf("%.0f%s", math.Floor(v), u.name)
		}
	}
	return strconv.FormatInt(n, 10)
}

// shortened returns the text of a number with thousands separators, such as ≥1,204,812, in its short
// form if it is wider than w cells: of a number that is cut, nobody knows how large it is. Other text,
// such as an id, is returned unchanged.
func shortened(text string, w int) string {
	at := strings.IndexAny(text, "0123456789")
	if at < 0 || !strings.Contains(text, ",") || theme.Width(text) <= w {
		return text
	}
	n, err := strconv.ParseInt(strings.ReplaceAll(text[at:], ",", ""), 10, 64)
	if err != nil {
		return text
	}
	return text[:at] + Short(n)
}
