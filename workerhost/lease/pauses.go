package lease

import (
	"maps"
	"sync"
	"time"
)

const (
	// minClaimPause and maxClaimPause bound for how long no more work of a lane is claimed after the host
	// lacked something to begin it. The pause doubles while that is so at the end of each.
	minClaimPause = 250 * time.Millisecond
	maxClaimPause = 30 * time.Second
	// handBackFor is for how long a host hands back the same work. After that it counts as an
	// attempt: perhaps the work itself is the cause, and it must not go round for ever.
	handBackFor = time.Hour
)

// Pauses says what becomes of work that a host claimed and could not begin, because the host itself
// lacked something, such as file descriptors: the work is handed back, no attempt is counted, and for a
// while no more of its lane is claimed. A lane is all work that needs the same to begin: the jobs of
// a kind, or the deliveries of a webhook subscription. The zero value is ready to use.
type Pauses[Lane, Work comparable] struct {
	mu    sync.Mutex
	lanes map[Lane]claimPause
	works map[Work]handedBack
}

type claimPause struct {
	until  time.Time
	length time.Duration // 0 = work of the lane has begun since
}

// handedBack says when work was handed back for the first and the last time.
type handedBack struct{ first, last time.Time }

// HandBack begins a pause of the lane, unless one lasts, and reports whether the work may be handed back.
func (p *Pauses[Lane, Work]) HandBack(lane Lane, work Work) bool {
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lanes == nil {
		p.lanes, p.works = map[Lane]claimPause{}, map[Work]handedBack{}
	}
	if pause := p.lanes[lane]; !now.Before(pause.until) {
		p.forget(now)
		length := min(max(2*pause.length, minClaimPause), maxClaimPause)
		p.lanes[lane] = claimPause{now.Add(length), length}
	}
	times, known := p.works[work]
	if !known {
		times.first = now
	}
	times.last = now
	p.works[work] = times
	if now.Sub(times.first) < handBackFor {
		return true
	}
	delete(p.works, work)
	return false
}

// Began records that work could begin: the next pause of its lane is short again.
func (p *Pauses[Lane, Work]) Began(lane Lane, work Work) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.works, work)
	if pause, known := p.lanes[lane]; known {
		p.lanes[lane] = claimPause{until: pause.until}
	}
}

// Paused returns the lanes of which nothing is claimed now.
func (p *Pauses[Lane, Work]) Paused() (lanes []Lane) {
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	for lane, pause := range p.lanes {
		if now.Before(pause.until) {
			lanes = append(lanes, lane)
		}
	}
	return lanes
}

// forget drops what does not matter any more, so that neither map grows without bound. Work that was not
// handed back here for so long has been begun by another host.
func (p *Pauses[Lane, Work]) forget(now time.Time) {
	maps.DeleteFunc(p.lanes, func(_ Lane, x claimPause) bool { return now.Sub(x.until) > maxClaimPause })
	maps.DeleteFunc(p.works, func(_ Work, x handedBack) bool { return now.Sub(x.last) > handBackFor })
}
