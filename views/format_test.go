package views_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
	"github.com/qtop/qtop/views/table"
	"github.com/qtop/qtop/views/theme"
	"github.com/qtop/qtop/views/viewstest"
)

func TestNumbers(t *testing.T) {
	t.Parallel()
	require.Equal(t, "0", views.Count(0))
	require.Equal(t, "-1,234", views.Count(-1234))
	require.Equal(t, "999", views.Count(999))
	require.Equal(t, "9,214,555", views.Count(9214555))
	require.Equal(t, "-9,223,372,036,854,775,808", views.Count(math.MinInt64))
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1.0k", 4821: "4.8k", 9_949: "9.9k", 9_950: "9.9k", 9_999: "9.9k", 10_000: "10k", -9_999: "-9.9k", 48120: "48k", 999_999: "999k", 1_200_000: "1.2M", math.MaxInt64: "9223372T"} {
		require.Equal(t, want, table.Short(n))
	}
	for f, want := range map[float64]string{0: "0.0", 0.04: "<0.1", 0.3: "0.3", 41.24: "41.2", 1234.5: "1,234", math.Inf(1): "1,000,000,000,000,000"} {
		require.Equal(t, want, views.Rate(f))
	}
	require.Equal(t, "0.0", views.Rate(math.NaN()))
}

func TestAges(t *testing.T) {
	t.Parallel()
	for s, want := range map[int64]string{
		-5: "0s", 0: "0s", 59: "59s", 60: "1m", 3599: "59m", 3600: "1h 00m", 342000: "95h 00m", 360000: "4d 04h", 86400 * 2000: "5y 175d",
	} {
		require.Equal(t, want, views.Age(s))
	}
	e := env(theme.Options{})
	for r, want := range map[float64]string{3: "3.0×", 9.9: "9.9×", 9.96: "9.9×", 10: "10×", 5700: "5,700×", 0: "–"} {
		require.Equal(t, want, e.Times(r), "ratio %v", r)
	}
	require.Equal(t, "00:05", e.Clock(viewstest.Now().Add(-9*time.Minute)))
	require.Equal(t, "11-20 23:02", e.Clock(viewstest.Now().Add(-72*time.Minute)))
	require.Equal(t, "–", e.Clock(time.Time{}))
	require.Equal(t, "2025-11-21", e.Clock(viewstest.Now().AddDate(-1, 0, 0)))
	e.Now = time.Date(2026, 12, 31, 23, 50, 0, 0, time.UTC)
	require.Equal(t, "01-01 00:20", e.Clock(e.Now.Add(30*time.Minute)), "a flag that goes back after midnight of the last day of the year")
	e.Now = e.Now.Add(time.Hour)
	require.Equal(t, "12-31 23:50", e.Clock(e.Now.Add(-time.Hour)))
	e = env(theme.Options{})
	require.Equal(t, "9m", e.Until(viewstest.Now().Add(8*time.Minute+time.Second)))
	require.Equal(t, "now", e.Until(viewstest.Now().Add(-time.Second)))
	require.Equal(t, "+0530", views.Zone(viewstest.Now().In(time.FixedZone("x", 19800))))
	require.Equal(t, "+02", views.Zone(viewstest.Now().In(time.FixedZone("x", 7200))))
}

// A share is rounded down to whole percents, and not below them by the arithmetic of fractions.
func TestShareOfAttemptsIsNotOneLess(t *testing.T) {
	t.Parallel()
	e := env(theme.Options{})
	for _, x := range [][3]int64{{29, 50, 58}, {57, 100, 57}, {49, 50, 98}, {999, 1000, 99}, {50, 50, 100}, {0, 50, 0}} {
		r := viewstest.Endpoints()[4]
		r.RecentOK, r.Recent = x[0], x[1]
		require.Contains(t, plain(views.EndpointPage(r, nil, e, 120).Lines), fmt.Sprintf(" %d %% of the last", x[2]), "%v", x)
		require.Contains(t, plain(views.Grid{Source: views.Webhooks([]queue.Endpoint{r}, nil), Order: []int{0}}.Lines(e, views.Size{W: 120, H: 3})), fmt.Sprintf(" %d%% ", x[2]), "%v", x)
	}
}

func TestCurves(t *testing.T) {
	t.Parallel()
	th := theme.New(theme.Options{})
	require.Equal(t, " ▁▄█", views.Spark(th, []int64{0, 1, 50, 100}, 4))
	require.Equal(t, "  ▁█", views.Spark(th, []int64{1, 100}, 4))
	require.Equal(t, "    ", views.Spark(th, nil, 4))
	require.Equal(t, "", views.Spark(th, []int64{1}, 0))
	require.Equal(t, []string{"  █", " ██"}, views.Chart(th, []int64{0, 8, 16}, 3, 2))
}

// The audit shows the date of an action only if it was not today, so that a narrow screen has room
// for what was done.
func TestSecondLeavesOutToday(t *testing.T) {
	t.Parallel()
	e := env(theme.Options{})
	require.Equal(t, e.Now.Format("15:04:05"), e.Second(e.Now))
	require.Equal(t, e.Now.AddDate(0, 0, -1).Format("01-02 15:04:05"), e.Second(e.Now.AddDate(0, 0, -1)))
	require.Equal(t, e.Now.AddDate(-1, 0, 0).Format("01-02 15:04:05"), e.Second(e.Now.AddDate(-1, 0, 0)), "the same day of another year")
	require.Equal(t, e.Theme.G.Dash, e.Second(time.Time{}))
}

// The duration of a run has its unit and is behind its counts.
func TestTickResultHasUnits(t *testing.T) {
	t.Parallel()
	require.Equal(t, "groups emitted 5, duration 59.2 ms", views.TickResult([]byte(`{"duration_ms": 59.2, "groups_emitted": 5, "errors": 0}`)))
	require.Equal(t, "nothing to do, duration 0.4 ms", views.TickResult([]byte(`{"duration_ms": 0.4, "groups_emitted": 0}`)))
}
