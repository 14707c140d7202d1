package main

// The report of a soak: what was lost or done twice, and a table of the
// figures.

import (
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// verdict prints the results of the ledger and of the database; wrong lists the reasons why the
// soak fails.
func (s *soak) verdict(w io.Writer) []string {
	for _, kind := range []string{"job", "webhook"} {
		r := s.ledger.result(kind)
		fmt.Fprintf(w, "%ss: acknowledged %d (%.0f a second), not answered %d, lost %d, done twice %d across a kill and %d without; %d refused once by the receiver\n",
			kind, r.acknowledged, float64(r.acknowledged)/s.produced.Seconds(), r.doubt, len(r.lost), r.traced, len(r.doubled), r.refused)
		if len(r.lost) > 0 {
			s.fail("%d %ss are lost, the first is %d", len(r.lost), kind, r.lost[0])
		}
		if len(r.doubled) > 0 {
			d := r.doubled[0]
			s.fail("%d %ss were done twice with no kill between, the first is %d, at %s and %s", len(r.doubled), kind, d.n,
				d.first.UTC().Format(time.StampMilli), d.again.UTC().Format(time.StampMilli))
		}
	}
	fmt.Fprintf(w, "kills: %d, ready again after %s at most; qtop status said exit code=times: %v\n",
		len(s.ledger.kills), s.slowest.Round(10*time.Millisecond), s.health)
	return slices.Clone(s.wrong)
}

// unit says how values of a figure are printed (text), and up to which
// increase they do not count as growing (floor).
type unit struct {
	floor float64
	text  func(float64) string
}

func unitOf(name string) unit {
	count := func(v float64) string { return strconv.FormatInt(int64(math.Round(v)), 10) }
	size := func(v float64) string { return fmt.Sprintf("%.1f MiB", v/(1<<20)) }
	switch {
	case name == "server wal":
		return unit{1 << 30, size} // the default of max_wal_size: WAL files are kept for reuse up to this size, however little is written
	case strings.HasSuffix(name, " dead rows"):
		return unit{20_000, count}
	case strings.HasSuffix(name, " behind"):
		return unit{500, count}
	case strings.HasSuffix(name, " done"), strings.HasSuffix(name, " fds"), strings.HasSuffix(name, " threads"),
		strings.HasSuffix(name, " goroutines"), strings.HasSuffix(name, " processes"), strings.HasSuffix(name, " sessions"):
		return unit{10, count}
	case strings.HasSuffix(name, " %"):
		return unit{5, count}
	case strings.HasPrefix(name, "table "):
		return unit{2 << 20, size}
	}
	return unit{8 << 20, size}
}

// small is the size in bytes below which a table gets no line in the report.
const small = 1 << 20

// table prints the figures up to the last sample and returns the figures that grow and should
// not.
func table(w io.Writer, samples []sample) (wrong []string) {
	if len(samples) == 0 {
		return nil
	}
	lasted := time.Duration(samples[len(samples)-1].At * float64(time.Second))
	points := map[string][]point{}
	for _, s := range samples {
		for name, v := range s.Figures {
			points[name] = append(points[name], point{s.At, v})
		}
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	sixth := (lasted / 6).Round(time.Second)
	fmt.Fprintf(t, "figure\tfirst %s\tlast %s\tslope an hour\t\n", sixth, sixth)
	flat := 0
	for _, name := range slices.Sorted(maps.Keys(points)) {
		u, why := unitOf(name), growsBecause(name)
		j := judge(points[name], lasted.Seconds(), u.floor, why != "")
		word := "flat"
		switch {
		case j.grows && why != "":
			word = "GROWS TOO FAST"
		case j.grows:
			word = "GROWS"
		case why != "":
			word = "by design: " + why
		}
		if j.grows && lasted >= judgedFrom {
			wrong = append(wrong, fmt.Sprintf("%s grows: %s, then %s", name, u.text(j.first), u.text(j.last)))
		}
		if strings.HasPrefix(name, "table ") && !j.grows && dull(name, points[name]) {
			flat++
			continue
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", name, u.text(j.first), u.text(j.last), u.text(j.slope), word)
	}
	_ = t.Flush()
	fmt.Fprintf(w, "and %d figures of tables that are flat below 1 MiB and 1,000 dead rows\n", flat)
	if lasted < judgedFrom {
		fmt.Fprintf(w, "%s is too short to say that something grows: from %s on that fails\n", lasted.Round(time.Second), judgedFrom)
	}
	return wrong
}

// dull reports whether a figure stays so small that the report leaves it out.
func dull(name string, points []point) bool {
	limit := float64(small)
	if strings.HasSuffix(name, " dead rows") {
		limit = 1000
	}
	return slices.Max(values(points)) < limit
}
