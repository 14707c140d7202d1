package handler

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/workerhost/sender"
)

// Spec binds a job kind to a command or to a URL.
type Spec struct {
	Kind    string
	Command []string
	URL     string
	Timeout time.Duration // of one attempt; 0 = until its context ends
}

// KindForm says what the name of a job kind looks like.
const KindForm = "begin with A-Z or a-z, then letters, digits and _ . : - (at most 100)"

var kindForm = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_.:-]{0,99}$`) // the same check as in job_lane

// IsKind reports whether a text can be the name of a job kind.
func IsKind(text string) bool { return kindForm.MatchString(text) }

// Parse makes the handlers, by job kind. Its error joins all problems, each one line and a
// *queue.Error of KindConfig. s sends the requests of handlers with a URL; s may be nil if no
// handler has a URL.
func Parse(specs []Spec, s *sender.Sender) (map[string]Handler, error) {
	all := make(map[string]Handler, len(specs))
	entries := make(map[string]int, len(specs)) // index of the spec that binds the kind
	var problems []error
	for i, spec := range specs {
		bad := func(what, do string) {
			where := fmt.Sprintf("handlers, entry %d", i+1)
			if spec.Kind != "" {
				where += ", kind " + cleanText(spec.Kind, 100)
			}
			problems = append(problems, queue.NewError(queue.KindConfig, what, where, do))
		}
		switch first, again := entries[spec.Kind]; {
		case spec.Kind == "":
			bad("kind is missing", "name the job kind that this entry works on")
		case !IsKind(spec.Kind):
			bad("kind is not the name of a job kind", KindForm)
		case again:
			bad(fmt.Sprintf("kind is bound already by entry %d", first), "keep one of them")
		default:
			entries[spec.Kind] = i + 1
		}
		h, err := spec.handler(s)
		if e, ok := errors.AsType[*queue.Error](err); ok {
			bad(e.What.String(), e.Do.String())
			continue
		}
		if spec.Timeout > 0 {
			h = limited{h, spec.Timeout}
		}
		all[spec.Kind] = h
	}
	if len(problems) > 0 {
		return nil, errors.Join(problems...)
	}
	return all, nil
}

// limited gives each attempt a timeout. Runner.Run applies it itself, so that also a handler that
// does not return frees its slot; Handle is for callers without a Runner.
type limited struct {
	Handler
	timeout time.Duration
}

func (l limited) Handle(ctx context.Context, job Job) error {
	ctx, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	return l.Handler.Handle(ctx, job)
}

// handler makes the handler of one Spec. Its error is a *queue.Error.
func (spec Spec) handler(s *sender.Sender) (Handler, error) {
	switch {
	case spec.Command != nil && spec.URL != "":
		return nil, badCommand("both command and url are given", "keep one of them")
	case spec.URL != "":
		return URL(spec.URL, s)
	case spec.Command != nil:
		return Command(spec.Command, CommandOptions{})
	}
	return nil, badCommand("neither command nor url is given", "give one of them")
}
