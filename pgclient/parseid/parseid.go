// Package parseid parses the ids that operators type: of dead letters of each source, of jobs,
// operations and webhook subscriptions.
package parseid

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/qtop/qtop/pgclient/queue"
)

// JobPrefix begins the id of a job dead letter.
const JobPrefix = "job:"

// IsJobDeadLetter reports whether id is the id of a job dead letter.
func IsJobDeadLetter(id string) bool { return strings.HasPrefix(strings.TrimSpace(id), JobPrefix) }

var uuidForm = regexp.MustCompile(`^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$`)

// article puts a or an before a noun.
func article(noun string) string {
	if strings.IndexAny(noun, "aeiou") == 0 {
		return "an " + noun
	}
	return "a " + noun
}

// UUID parses a uuid with an optional prefix, and returns it in PostgreSQL's form. what names the
// id in errors.
func UUID(id, what, prefix string) (string, error) {
	s := strings.TrimPrefix(strings.TrimSpace(id), prefix)
	if !uuidForm.MatchString(s) {
		return "", queue.NewError(queue.KindUsage, strconv.Quote(id)+" is not the id of "+article(what), "", "it looks like "+prefix+"0190a1b2-1111-4222-8333-0123456789ab")
	}
	return strings.ToLower(s), nil
}

// EventPrefix begins the id of an event dead letter.
const EventPrefix = "event:"

// IsEventDeadLetter reports whether id is the id of an event dead letter.
func IsEventDeadLetter(id string) bool { return strings.HasPrefix(strings.TrimSpace(id), EventPrefix) }

// WebhookEvent parses the id of a webhook event: event:NUMBER, or the number alone.
func WebhookEvent(id string) (int64, error) {
	n, err := strconv.ParseInt(strings.TrimPrefix(strings.TrimSpace(id), EventPrefix), 10, 64)
	if err != nil || n <= 0 {
		return 0, queue.NewError(queue.KindUsage, strconv.Quote(id)+" is not the id of a webhook event", "", "write event: and its number, as the page of a dead letter has it")
	}
	return n, nil
}

// Webhook parses the id of a webhook dead letter: a number.
func Webhook(id string) (int64, error) {
	n, err := strconv.ParseInt(strings.TrimSpace(id), 10, 64)
	if err != nil || n <= 0 {
		return 0, queue.NewError(queue.KindUsage, strconv.Quote(id)+" is not the id of a dead letter", "",
			"a webhook dead letter has a bare number, one of a job is job:UUID, one of an event is event:UUID, as qtop dlq prints them")
	}
	return n, nil
}

// Subscription parses the number of a webhook subscription.
func Subscription(id string) (int64, error) {
	n, err := strconv.ParseInt(id, 10, 64)
	if err != nil || n <= 0 {
		return 0, queue.NewError(queue.KindUsage, strconv.Quote(id)+" is not the number of a webhook subscription", "", "write its number, as qtop webhooks prints it")
	}
	return n, nil
}

// Payload returns the kind and key with which fn_payload_masked and fn_payload_reveal find the
// payload that belongs to an id: of a dead letter, or of a job (a plain uuid).
func Payload(id string) (kind, key string, err error) {
	switch id = strings.TrimSpace(id); {
	case IsJobDeadLetter(id):
		key, err = UUID(id, "job dead letter", JobPrefix)
		return "job_dead_letter", key, err
	case IsEventDeadLetter(id):
		key, err = UUID(id, "event dead letter", EventPrefix)
		return "event_dead_letter", key, err
	case uuidForm.MatchString(id):
		return "job", strings.ToLower(id), nil
	}
	n, err := Webhook(id)
	return "dead_letter", strconv.FormatInt(n, 10), err
}

// Operation parses the number of a bulk operation.
func Operation(id string) (int64, error) {
	n, err := strconv.ParseInt(id, 10, 64)
	if err != nil || n <= 0 {
		return 0, queue.NewError(queue.KindUsage, strconv.Quote(id)+" is not the number of an operation", "", "see qtop ops")
	}
	return n, nil
}
