package queue

import "strings"

// Word is a stored value and the word that screens show for it.
type Word struct{ Stored, Shown string }

// OperationWords returns the words for the kinds of bulk operations.
func OperationWords() []Word {
	return []Word{{"requeue_webhook", "requeue"}, {"replay_job", "requeue"}, {"replay_event", "requeue"}}
}

// GateWords returns the words for the gates of webhook subscriptions; a suspended one is shown as
// its reason instead.
func GateWords() []Word {
	return []Word{{"open", "sending"}, {"half_open", "half open"}}
}

// Shown returns the word for a stored value; without one, the value.
func Shown(words []Word, stored string) string {
	for _, w := range words {
		if w.Stored == stored {
			return w.Shown
		}
	}
	return stored
}

// AuditWords returns the action of an audit row in words: a replay of jobs and events is a requeue on the
// screens.
func AuditWords(action string) string {
	return strings.ReplaceAll(strings.ReplaceAll(strings.TrimPrefix(action, "iu_route_"), "_replay", "_requeue"), "_", " ")
}

// AuditTarget returns the target of an audit row in words: the kind of the row that was changed,
// and its id.
func AuditTarget(target string) string {
	kind, id, ok := strings.Cut(target, " ")
	if !ok {
		return target
	}
	return strings.ReplaceAll(kind, "_", " ") + " " + id
}
