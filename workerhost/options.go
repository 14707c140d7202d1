package workerhost

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/qtop/qtop/pgclient/enqueue"
	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/workerhost/handler"
	"github.com/qtop/qtop/workerhost/sender"
)

// Options configures a Host.
type Options struct {
	ID          string        // the host_id, required; at most one live instance has it
	Version     string        // of your program, for people: the console and qtop hosts show it
	Loops       []string      // loops that Run starts; nil = all loops, empty = none
	Concurrency int           // slots: webhook requests in flight, and also job handlers that run at once; default 64
	PerEndpoint int           // webhook requests in flight per endpoint; default 8
	Grace       time.Duration // how long the end of Run waits for work in flight before it cancels it; default 20 s
	// Handlers work on jobs, by job kind. The host claims no jobs of a kind without a handler.
	// The names of the tick workers are built-in kinds and not allowed here.
	Handlers map[string]handler.Handler
	// Executor is the executor id under which the host claims jobs; default ID. Several hosts may
	// share one if each has a separate Client: on one Client, Run of the second fails.
	Executor string
	// JobTimeout bounds every attempt: then its context ends. Default 1 h, negative = as long as
	// its lease can be renewed. A handler gives its kind a shorter time with context.WithTimeout.
	JobTimeout time.Duration
	// Producer enqueues jobs for other code of this process. When the host has a free slot, it
	// claims jobs in the producer's transactions, so both have one Client: New refuses a producer
	// of another. Default: a producer that no one uses.
	Producer *enqueue.Producer
	// Operator is the person who runs the console in this process. The host row names the
	// operator when the loops are ended in the console.
	Operator string
	// Log gets the events and errors of the host; nil = nothing is logged. The failed
	// attempts of jobs are in the database alone: qtop job show ID, qtop dlq.
	Log *slog.Logger
	// Sender sends webhooks. At its end Run closes the sender's idle connections. Default: sender.New
	// with this Version and Concurrency, which connects to public addresses over TLS alone.
	Sender *sender.Sender
	// Secrets sign webhooks. Without the secret of a subscription the host sends nothing to it.
	Secrets *sender.Secrets
}

// mostID is the greatest length of a host id: leases hold it with a slash and 8 characters of the
// instance, in at most 200 characters.
const mostID = 200 - 9

// Check returns the error with which New refuses the options, without a client: the id is empty or too long,
// a loop is unknown, or a handler is not allowed. The error joins all problems, each one line and a
// *queue.Error of KindConfig.
func (o Options) Check() error {
	var problems []error
	bad := func(what, where, do string) {
		problems = append(problems, queue.NewError(queue.KindConfig, what, where, do))
	}
	if strings.TrimSpace(o.ID) == "" {
		bad("the host has no id", "host_id", "give it one that no other host has, such as shop-1")
	} else if n := utf8.RuneCountInString(o.ID); n > mostID {
		bad(fmt.Sprintf("the host id has %d characters", n), "host_id", fmt.Sprintf("use at most %d", mostID))
	}
	for _, name := range o.Loops {
		if !slices.Contains(LoopNames(), name) {
			bad("there is no loop "+name, "loops", "use one of "+strings.Join(LoopNames(), ", "))
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(o.Handlers)) {
		switch {
		case builtIn(kind):
			bad("this job kind is built in", "handlers, kind "+kind, "give your handler another kind")
		case !handler.IsKind(kind): // no such job can be enqueued
			bad("kind is not the name of a job kind", "handlers, kind "+queue.Clean(kind).Cut(100).String(), handler.KindForm)
		case isNil(o.Handlers[kind]): // each job would panic
			bad("the handler is nil", "handlers, kind "+kind, "set a handler or remove the entry")
		}
	}
	return errors.Join(problems...)
}

// isNil reports whether a handler is nil, or an interface that holds a function or a pointer that is nil.
func isNil(h handler.Handler) bool {
	v := reflect.ValueOf(h)
	return h == nil || (v.Kind() == reflect.Func || v.Kind() == reflect.Pointer) && v.IsNil()
}
