package views_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
	"github.com/qtop/qtop/views/theme"
	"github.com/qtop/qtop/views/viewstest"
)

// setTimes sets every time.Time inside v to at, by reflection.
func setTimes(v reflect.Value, at time.Time) {
	if v.Type() == reflect.TypeFor[time.Time]() {
		if v.CanSet() {
			v.Set(reflect.ValueOf(at))
		}
		return
	}
	switch v.Kind() { //nolint:exhaustive // no other kind can contain a time
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			setTimes(v.Elem(), at)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				setTimes(v.Field(i), at)
			}
		}
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			setTimes(v.Index(i), at)
		}
	}
}

// PostgreSQL has times such as infinity that a calendar cannot show. Every
// pane draws them as words, without a panic.
func TestPanesWithOddTimes(t *testing.T) {
	t.Parallel()
	shown := map[string]int{}
	for _, at := range []time.Time{queue.Infinite(1), queue.Infinite(-1), queue.Calendar(time.Date(-4712, 1, 1, 0, 0, 0, 0, time.UTC)),
		queue.Calendar(time.Date(294276, 12, 31, 0, 0, 0, 0, time.UTC)), time.Unix(0, 0), time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC)} {
		w := viewstest.HostileWorld("x")
		setTimes(reflect.ValueOf(&w).Elem(), at)
		for name, body := range bodies(w) {
			for _, size := range []views.Size{{W: 80, H: 24}, {W: 200, H: 60}} {
				got := screen(w, name, body, env(theme.Options{}), size)
				requireFits(t, got, size)
				require.NotContains(t, got, "9999-12", name)
				if word := queue.Uncalendared(at); word != "" && strings.Contains(got, word) {
					shown[word]++
				}
			}
		}
	}
	for _, word := range []string{"infinity", "-infinity", "before year 1", "after year 9999"} {
		require.Positive(t, shown[word], "no pane says %q", word)
	}
}
