package enqueue

import "time"

// SetClaimWithin sets how long a claimer waits for the result of a claim.
func (p *Producer) SetClaimWithin(d time.Duration) { p.batch.claimWithin = d }
