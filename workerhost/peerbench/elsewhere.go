package main

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"
)

// elsewhere makes another process insert single jobs.
type elsewhere struct {
	producer *producer
	mu       sync.Mutex
	answers  map[int]chan inserted
}

type inserted struct {
	sent time.Time // just before the insert, by the machine's clock
	ok   bool
}

func openElsewhere(spec producerSpec) (*elsewhere, error) {
	cmd, err := self(producerEnv, spec)
	if err != nil {
		return nil, err
	}
	cmd.Stderr = os.Stderr
	e := &elsewhere{answers: map[int]chan inserted{}}
	e.producer, err = startProducer(cmd, func(n int, sent int64, ok bool) {
		e.mu.Lock()
		defer e.mu.Unlock()
		if answer := e.answers[n]; answer != nil {
			answer <- inserted{time.Unix(0, sent), ok}
			delete(e.answers, n)
		}
	})
	return e, err
}

// insert makes the other process insert job n, and returns when that process sent the insert.
func (e *elsewhere) insert(ctx context.Context, n int) (time.Time, error) {
	answer := make(chan inserted, 1)
	e.mu.Lock()
	e.answers[n] = answer
	e.mu.Unlock()
	e.producer.say("insert %d\n", n)
	select {
	case a := <-answer:
		if !a.ok {
			return a.sent, errors.New("the producer's process could not insert")
		}
		return a.sent, nil
	case <-e.producer.end:
		return time.Time{}, errors.New("the producer's process has ended")
	case <-ctx.Done():
		return time.Time{}, ctx.Err()
	}
}
