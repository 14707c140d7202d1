package queue

import "slices"

// Unticked is a reason for which nobody runs some tick workers.
type Unticked struct {
	Why     Text   `json:"why"`
	Workers []Text `json:"workers"`
}

// noHostRuns is what the database says of a worker that only a host can tick.
const noHostRuns = "no live host runs it"

// Unticked lists the reasons for which nobody runs tick workers that are switched on, those of the most workers first.
// A worker whose last run failed is run. One that an alert is about is left to that alert, and while no host is alive at
// all, or an alert says what no host runs, that alone is no reason of a worker's own.
func (s *Snapshot) Unticked() []Unticked {
	out := []Unticked{}
	if !s.Server.CloneOf.Empty() { // which says it for all of them
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
