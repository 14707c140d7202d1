package main

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
)

func TestRatiosAreTakenWithinTheRound(t *testing.T) {
	t.Parallel()
	// In the second round the machine has half its speed, and the ratio does not change.
	r := measure{"/s", []float64{300, 150, 270}}.over(measure{"/s", []float64{100, 50, 100}})
	if got := r.String(); got != "3.00 (2.70–3.00)" {
		t.Errorf("ratio %s", got)
	}
	if r := (measure{"/s", []float64{1, 2}}).over(measure{"/s", []float64{1}}); r.taken() {
		t.Errorf("rounds that do not pair give no ratio, not %s", r)
	}
}

func TestVerdictJudgesTheRatioOrOurFigure(t *testing.T) {
	t.Parallel()
	one := func(v float64) measure { return measure{"", []float64{v}} }
	for _, c := range []struct {
		g    goal
		want string
	}{
		{goal{ours: one(5), peer: one(2), peerName: "p", floor: atLeast(2), stretch: atLeast(2.5)}, "stretch"},
		{goal{ours: one(5), peer: one(2), peerName: "p", floor: atLeast(2), stretch: atLeast(3)}, "floor"},
		{goal{ours: one(3), peer: one(2), peerName: "p", floor: atLeast(2)}, "no"},
		{goal{ours: one(3), peer: one(2), peerName: "p", stretch: atLeast(2)}, "no"},
		{goal{ours: one(3), peerName: "p", floor: atLeast(2)}, "not measured"},
		{goal{ours: one(7), floor: atMost(10), stretch: atMost(5)}, "floor"},
		{goal{ours: one(7), peer: one(1), peerName: "p"}, "–"},
	} {
		if got := c.g.verdict(); got != c.want {
			t.Errorf("%s instead of %s: %+v", got, c.want, c.g)
		}
	}
}

func TestContestInterleavesAndDropsWhoFails(t *testing.T) {
	t.Parallel()
	var order strings.Builder
	runs := func(name string, fail error) contender {
		return contender{name, func(_ context.Context, put put) error {
			order.WriteString(name)
			put("rate", "/s", 1)
			if strings.Count(order.String(), name) == 2 {
				return fail
			}
			return nil
		}}
	}
	b := &bench{rounds: 3, progress: io.Discard}
	f := b.contest(t.Context(), runs("A", nil), runs("B", errors.New("lost a job")), runs("C", notRun{"no node"}))
	if got := order.String(); got != "ABCABCA" {
		t.Errorf("order %s", got)
	}
	if f.get("B", "rate").taken() || f.get("C", "rate").taken() || len(f.get("A", "rate").values) != 3 {
		t.Errorf("kept: %+v", f.by)
	}
	if len(b.wrong) != 1 || !strings.Contains(b.wrong[0], "lost a job") {
		t.Errorf("wrong: %q", b.wrong)
	}
	if len(f.outs) != 2 {
		t.Errorf("outs: %q", f.outs)
	}
}

func TestNumbersKeepThreeDigits(t *testing.T) {
	t.Parallel()
	for v, want := range map[float64]string{1234567: "1,234,567", 1000: "1,000", 999.4: "999", 26.84: "26.8", 3.456: "3.46", 0.0123: "0.012", 0: "0.00"} {
		if got := number(v); got != want {
			t.Errorf("%v: %s instead of %s", v, got, want)
		}
	}
}
