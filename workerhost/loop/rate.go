package loop

import "time"

// rate is a mean over the last minute, in buckets of five seconds.
type rate struct {
	buckets [12]int64
	stamps  [12]int64 // unix / 5
}

func (r *rate) add(at time.Time, n int64) {
	slot := at.Unix() / 5
	i := slot % int64(len(r.buckets))
	if r.stamps[i] != slot {
		r.buckets[i], r.stamps[i] = 0, slot
	}
	r.buckets[i] += n
}

func (r *rate) perSecond(now time.Time) float64 {
	var sum int64
	slot := now.Unix() / 5
	for i, s := range r.stamps {
		if slot-s < int64(len(r.buckets)) {
			sum += r.buckets[i]
		}
	}
	return float64(sum) / 60
}
