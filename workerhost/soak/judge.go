package main

// The rule by which a figure is flat or grows.
//
// The first sixth of the time is left out: caches fill, tables find their size. Of the
// rest, a figure that should be flat grows when both hold:
//
//   - its slope over all of the rest adds up, over that time, to more than a fifth of where
//     it began and to more than a floor for its unit;
//   - its slope over the second half of the rest is at least half of that: a figure that settles
//     does not grow without bound.
//
// What grows by design, with the work that was done, grows too fast when its slope over
// the second half is more than 1.5 times that over the first half (and a floor): then a
// piece of work costs more and more room.
//
// A slope is that of Theil and Sen, the median of the slopes between all pairs of samples:
// neither vacuum nor a restarted host bends it much.

import (
	"math"
	"slices"
	"time"
)

// judgedFrom is the shortest soak whose growth says something: tables are vacuumed once a
// minute at most, and need some rounds to find their size.
const judgedFrom = 20 * time.Minute

// point is a figure at a time, in seconds from the start.
type point struct{ at, v float64 }

// judgement is what the samples say of one figure.
type judgement struct {
	first, last float64 // medians of the first and of the last sixth
	slope       float64 // an hour, without the first sixth
	grows       bool
}

// pointsAtMost bounds the pairs that slope goes through.
const pointsAtMost = 300

// judge judges a figure that should be flat; floor is what does not count as growth.
func judge(points []point, lasted, floor float64, byDesign bool) judgement {
	sixth := lasted / 6
	from := func(a, b float64) (out []point) {
		for _, p := range points {
			if p.at >= a && p.at <= b {
				out = append(out, p)
			}
		}
		return out
	}
	rest := from(sixth, lasted)
	middle := sixth + (lasted-sixth)/2
	all, early, late := slope(rest), slope(from(sixth, middle)), slope(from(middle, lasted))
	j := judgement{first: median(values(from(0, sixth))), last: median(values(from(lasted-sixth, lasted))), slope: all * 3600}
	if byDesign {
		j.grows = late*(lasted-middle) > 1.5*max(0, early)*(middle-sixth)+floor
		return j
	}
	began := median(values(from(sixth, 2*sixth)))
	j.grows = all*(lasted-sixth) > max(began/5, floor) && late >= all/2
	return j
}

func values(points []point) []float64 {
	out := make([]float64, len(points))
	for i, p := range points {
		out[i] = p.v
	}
	return out
}

func median(v []float64) float64 {
	if len(v) == 0 {
		return math.NaN()
	}
	slices.Sort(v)
	if n := len(v) / 2; len(v)%2 == 0 {
		return (v[n-1] + v[n]) / 2
	}
	return v[len(v)/2]
}

// slope is the median slope between all pairs of points, a second; 0 for fewer than 3.
func slope(points []point) float64 {
	if len(points) < 3 {
		return 0
	}
	step := 1 + len(points)/pointsAtMost
	var all []float64
	for i := 0; i < len(points); i += step {
		for k := i + step; k < len(points); k += step {
			if d := points[k].at - points[i].at; d > 0 {
				all = append(all, (points[k].v-points[i].v)/d)
			}
		}
	}
	return median(all)
}
