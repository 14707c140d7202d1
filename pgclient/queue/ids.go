package queue

import (
	"slices"
	"strconv"
)

// ID is the id of something that an operator can name, and a few words about it.
type ID struct {
	ID    string
	About string // may be empty
}

// IDs returns the ids of one kind in the snapshot, each once, in the order of the snapshot. The
// kinds are those of Targets.Of ("alert", "executor", "flag", "job subscription", "lease",
// "operation", "tick worker"), and "code" (codes of open dead letters), "queue" (queues with
// waiting work), "lane kind" and "lane domain" (of queue lanes). For any other kind the result is
// empty.
func (s *Snapshot) IDs(of string) []ID {
	var all []ID
	add := func(id, about Text) {
		if !id.Empty() && !slices.ContainsFunc(all, func(x ID) bool { return x.ID == id.String() }) {
			all = append(all, ID{id.String(), about.String()})
		}
	}
	switch of {
	case "alert":
		for _, x := range s.Alerts {
			add(x.Subject, Clean(x.Severity))
		}
	case "executor":
		for _, x := range s.Executors {
			if x.DeregisteredAt == nil {
				add(x.ID, Clean(x.State))
			}
		}
	case "flag":
		for _, x := range s.Flags {
			add(x.Key, Clean(x.Value.String()+"; "+x.Description.String()))
		}
	case "job subscription":
		for _, x := range s.JobSubscriptions {
			add(Clean(x.ID), Clean(x.ExecutorID.String()+" "+x.JobKind.String()+Choose(x.Enabled, "", ", disabled")))
		}
	case "lane kind":
		for _, x := range s.Queues {
			add(x.Kind, x.Domain)
		}
	case "lane domain":
		for _, x := range s.Queues {
			add(x.Domain, Text{})
		}
	case "lease":
		for _, x := range s.JobLeases {
			add(Clean(x.ID), x.Owner)
		}
	case "operation":
		for _, x := range s.Operations {
			add(Clean(strconv.FormatInt(x.ID, 10)), Clean(x.State+", "+x.Filter.String()))
		}
	case "tick worker":
		for _, x := range s.Ticks {
			add(x.Name, Text{})
		}
	case "code":
		for _, x := range s.DeadGroups {
			add(x.Code, x.Endpoint)
		}
	case "queue":
		for _, x := range s.Waiting {
			add(Clean(x.Name()), Text{})
		}
	}
	return all
}
