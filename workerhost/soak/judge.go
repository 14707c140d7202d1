package main

// How the soak decides whether a figure (memory, goroutines, the size of a
// table) is flat or grows.
//
// The first sixth of the time is left out, because caches fill and tables
// reach their size then. In the remaining time, a figure that should be flat
// grows when both conditions hold:
//
//   - its slope, multiplied by the remaining time, is more than a fifth of its
//     value at the beginning of that time, and more than a minimum for its
//     unit (the floor);
//   - its slope over the second half of the remaining time is at least half of
//     its slope over all of it: otherwise the figure settles and does not grow
//     without bound.
//
// Some figures grow by design with the amount of finished work (growers.go).
// Such a figure grows too fast when its increase in the second half is more
// than 1.5 times its increase in the first half plus the floor: then the same
// amount of work needs more and more space.
//
// The slope is that of Theil and Sen, the median of the slopes between all
// pairs of samples: single outliers, from vacuum or a restarted host, hardly
// change it.

import (
	"math"
	"slices"
	"time"
)

// judgedFrom is the shortest duration of a soak whose growth is judged: tables are vacuumed once
// a minute at most, and need some rounds until they keep their size.
const judgedFrom = 20 * time.Minute

// point is the value v of a figure at the time at, in seconds from the start.
type point struct{ at, v float64 }

// judgement is the result of judge for one figure.
type judgement struct {
	first, last float64 // medians of the first and of the last sixth of the time
	slope       float64 // change per hour, without the first sixth
	grows       bool
}

// pointsAtMost bounds the points of one slope, because slope looks at all pairs of them.
const pointsAtMost = 300

// judge decides whether a figure grows. lasted is the duration in seconds, floor the increase
// that is not counted as growth, and byDesign means that the figure may grow with the finished
// work.
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

// slope returns the median slope between all pairs of points, per second; 0 for fewer than 3
// points.
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
