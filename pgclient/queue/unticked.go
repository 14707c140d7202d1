package queue

import "slices"

// Unticked is a reason why some tick workers are not run.
type Unticked struct {
	Why     Text   `json:"why"`
	Workers []Text `json:"workers"` // the tick workers that are not run for this reason
}

// noHostRuns is the reason that the database gives for a worker that only a host can run.
const noHostRuns = "no live host runs it"

// Unticked returns the reasons why enabled tick workers are not run, the reason of the most workers
// first. A worker whose last run failed counts as run. A worker with an alert is left out, because
// the alert says why. If no host is alive, or an alert names the loops that no host runs, that
// reason is not repeated per worker.
func (s *Snapshot) Unticked() []Unticked {
	out := []Unticked{}
	if !s.Server.CloneOf.Empty() { // the message about the clone covers all tick workers
		return out
	}
	told := map[string]bool{}
	noHost := s.Flow.HostsAlive == 0
	for _, a := range s.Alerts {
		told[a.Subject.String()] = true
		noHost = noHost || a.Kind == AlertNoHost
	}
	for _, t := range s.Ticks {
		if t.Why.Empty() || t.State == "failed" || told[t.Name.String()] || noHost && t.Why.String() == noHostRuns {
			continue
		}
		i := slices.IndexFunc(out, func(u Unticked) bool { return u.Why == t.Why })
		if i < 0 {
			i = len(out)
			out = append(out, Unticked{Why: t.Why})
		}
		out[i].Workers = append(out[i].Workers, t.Name)
	}
	slices.SortStableFunc(out, func(a, b Unticked) int { return len(b.Workers) - len(a.Workers) })
	return out
}
