package workerhost

import "time"

// minStep is the smallest difference between the server's clock and the host's that counts as a step. NTP corrects
// less than that by running the clock faster or slower.
const minStep = 500 * time.Millisecond

// serverClock compares the server's time of successive answers with the time that passed here, and so notices that the
// server's clock was set. The zero value has seen no answer yet.
type serverClock struct {
	at              time.Time // the server's time in the last answer
	asked, answered time.Time // when that answer was asked for, and when it arrived
}

// read takes the server's time of a further answer. It returns by how much the server's clock stepped forward since the
// last answer, or back as a negative duration, and 0 for no step.
//
// The server read its clock at some moment between asked and answered, so the time that passed between two answers is
// known within bounds; only a difference beyond them is a step, however slow the network is. Both clocks of this machine
// count, as the monotonic clock of a suspended machine stops and its wall clock may be set.
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

// wall is t without its reading of the monotonic clock.
func wall(t time.Time) time.Time { return t.Round(0) }
