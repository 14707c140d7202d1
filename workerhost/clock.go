package workerhost

import "time"

// minStep is the smallest difference between the server's clock and this machine's that counts as
// a step. NTP corrects smaller differences by running the clock faster or slower.
const minStep = 500 * time.Millisecond

// serverClock notices that somebody set the server's clock: it compares the server's times in
// successive answers with the time that passed on this machine. The zero value has seen no answer
// yet.
type serverClock struct {
	at              time.Time // the server's time in the last answer
	asked, answered time.Time // when the last answer was requested, and when it arrived
}

// read records a further answer with the server's time at. asked and answered
// say when it was requested and arrived. It returns by how much the server's
// clock was set since the last answer (a step): positive if forward, negative
// if back, 0 if it was not set.
//
// The server read its clock at some moment between asked and answered, so the
// time that passed on the server between two answers is known within bounds.
// Only a difference beyond these bounds counts as a step, however slow the
// network is. Two bounds are used, from this machine's monotonic and its wall
// clock, because the first stops while the machine is suspended and the second
// may itself be set.
func (c *serverClock) read(at, asked, answered time.Time) time.Duration {
	last := *c
	*c = serverClock{at, asked, answered}
	if last.at.IsZero() || at.IsZero() {
		return 0
	}
	passed := at.Sub(last.at)
	if ahead := passed - max(answered.Sub(last.asked), wall(answered).Sub(wall(last.asked))); ahead >= minStep {
		return ahead
	}
	if behind := min(asked.Sub(last.answered), wall(asked).Sub(wall(last.answered))) - passed; behind >= minStep {
		return -behind
	}
	return 0
}

// wall returns t without the monotonic clock reading.
func wall(t time.Time) time.Time { return t.Round(0) }
