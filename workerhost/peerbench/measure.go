package main

// Figures, which are measured once per round, and the contest between contenders that measures
// them.

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// measure is one figure (such as jobs per second), with one value per round.
// Without values, it was not measured.
type measure struct {
	unit   string
	values []float64
}

func (m measure) taken() bool { return len(m.values) > 0 }

// median returns the median of the rounds; for an even number of rounds, the mean of the middle
// two.
func (m measure) median() float64 {
	s := slices.Sorted(slices.Values(m.values))
	n := len(s)
	return (s[(n-1)/2] + s[n/2]) / 2
}

// over returns the ratio of m to peer for each round. Other load in one round slows both
// contenders, so their ratio hardly changes.
func (m measure) over(peer measure) measure {
	if len(m.values) != len(peer.values) {
		return measure{}
	}
	r := measure{unit: "×"}
	for i, v := range m.values {
		r.values = append(r.values, v/peer.values[i])
	}
	return r
}

func (m measure) String() string {
	switch {
	case !m.taken():
		return "–"
	case len(m.values) == 1:
		return number(m.values[0]) + m.suffix()
	}
	return fmt.Sprintf("%s%s (%s–%s)", number(m.median()), m.suffix(), number(slices.Min(m.values)), number(slices.Max(m.values)))
}

func (m measure) suffix() string {
	if m.unit == "" || m.unit == "×" {
		return ""
	}
	return " " + m.unit
}

// number formats v with three significant digits, and with a separator for thousands.
func number(v float64) string {
	switch {
	case v >= 1000:
		s := fmt.Sprintf("%.0f", v)
		for i := len(s) - 3; i > 0; i -= 3 {
			s = s[:i] + "," + s[i:]
		}
		return s
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	case v >= 0.1 || v == 0:
		return fmt.Sprintf("%.2f", v)
	}
	return fmt.Sprintf("%.2g", v)
}

// quantile returns a quantile of sorted samples, by nearest rank.
func quantile(sorted []time.Duration, q float64) time.Duration {
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

// put records one value of the contender that is being measured.
type put func(figure, unit string, v float64)

// contender is one participant of a contest. It is measured once per round.
type contender struct {
	name string
	run  func(ctx context.Context, put put) error
}

// notRun is the error of a contender that this machine cannot measure, for
// example because node is missing. It does not make the command fail.
type notRun struct{ why string }

func (e notRun) Error() string { return "this contestant was not run: " + e.why }

// figures holds the results of one part, in the order in which they were first put.
type figures struct {
	keys []figure
	by   map[figure]*measure
	outs []string // contenders without a result, with the reason
}

type figure struct{ who, what string }

func (f *figures) get(who, what string) measure {
	if m := f.by[figure{who, what}]; m != nil {
		return *m
	}
	return measure{}
}

func (f *figures) put(who, what, unit string, v float64) {
	k := figure{who, what}
	if f.by[k] == nil {
		f.keys = append(f.keys, k)
		f.by[k] = &measure{unit: unit}
	}
	f.by[k].values = append(f.by[k].values, v)
}

// drop removes the results of a contender, because its rounds would not match the rounds of the
// others.
func (f *figures) drop(who, why string) {
	f.keys = slices.DeleteFunc(f.keys, func(k figure) bool {
		if k.who == who {
			delete(f.by, k)
		}
		return k.who == who
	})
	f.outs = append(f.outs, who+": "+why)
}

// contest measures the contenders round by round (A B C A B C …), so that a slow change of the
// machine's speed affects all of them. A contender that fails is dropped.
func (b *bench) contest(ctx context.Context, cs ...contender) *figures {
	return b.contestOf(ctx, b.rounds, cs...)
}

func (b *bench) contestOf(ctx context.Context, rounds int, cs ...contender) *figures {
	f := &figures{by: map[figure]*measure{}}
	for round := range rounds {
		for _, c := range slices.Clone(cs) {
			if ctx.Err() != nil {
				break
			}
			began := time.Now()
			err := b.once(ctx, c, f)
			if err != nil && ctx.Err() == nil {
				f.drop(c.name, err.Error())
				cs = slices.DeleteFunc(cs, func(x contender) bool { return x.name == c.name })
				if why := (notRun{}); !errors.As(err, &why) {
					b.wrong = append(b.wrong, b.part+", "+c.name+": "+err.Error())
				}
			}
			b.say("%s, round %d of %d: %s, %.1f s%s", b.part, round+1, rounds, c.name, time.Since(began).Seconds(), trouble(err))
		}
	}
	return f
}

// patience bounds one measurement of one contender.
const patience = 30 * time.Minute

func (b *bench) once(ctx context.Context, c contender, f *figures) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return c.run(ctx, func(what, unit string, v float64) { f.put(c.name, what, unit, v) })
}

func trouble(err error) string {
	if err == nil {
		return ""
	}
	return ": " + err.Error()
}
