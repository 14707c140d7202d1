package main

import (
	"errors"
	"fmt"
	"strconv"
	"time"
)

// settings holds the environment variables by which the comparison controls the adapter.
type settings struct {
	dsn         string // DATABASE_URL
	scenario    string // SCENARIO
	depthTarget bool   // PRODUCER_MODE: keep a number of jobs in the queue, instead of enqueueing at a rate
	tokens      bool   // PRODUCER_PACING=harness: each line "ENQUEUE n" on the input requests n jobs
	rate        int    // PRODUCER_RATE, jobs per second
	rateFile    string // PRODUCER_RATE_CONTROL_FILE: its content replaces the rate while the adapter runs
	batchMax    int    // PRODUCER_BATCH_MAX, jobs per call
	batchEvery  time.Duration
	targetDepth int
	workers     int
	payload     int // length in bytes
	workTime    time.Duration
	sampleEvery time.Duration
	instance    int // BENCH_INSTANCE_ID; instance 0 also reports the metrics that all instances share
}

// readSettings reads the settings from the environment; a missing variable has the contract's
// default.
func readSettings(env func(string) string) (settings, error) {
	var errs []error
	number := func(key string, usual, least int) int {
		text := env(key)
		if text == "" {
			return usual
		}
		n, err := strconv.Atoi(text)
		if err != nil || n < least {
			errs = append(errs, fmt.Errorf("%s must be a number of at least %d, not %q", key, least, text))
		}
		return n
	}
	s := settings{
		dsn: env("DATABASE_URL"), scenario: env("SCENARIO"), rateFile: env("PRODUCER_RATE_CONTROL_FILE"),
		tokens: env("PRODUCER_PACING") == "harness",
		rate:   number("PRODUCER_RATE", 800, 0), batchMax: number("PRODUCER_BATCH_MAX", 128, 1),
		batchEvery:  time.Duration(number("PRODUCER_BATCH_MS", 10, 1)) * time.Millisecond,
		targetDepth: number("TARGET_DEPTH", 1000, 1), workers: number("WORKER_COUNT", 32, 1),
		payload: number("JOB_PAYLOAD_BYTES", 256, 0), workTime: time.Duration(number("JOB_WORK_MS", 1, 0)) * time.Millisecond,
		sampleEvery: time.Duration(number("SAMPLE_EVERY_S", 5, 1)) * time.Second, instance: number("BENCH_INSTANCE_ID", 0, 0),
	}
	if s.dsn == "" {
		errs = append(errs, errors.New("DATABASE_URL must be set"))
	}
	switch s.scenario {
	case "", "long_horizon", "migrate_only":
	default:
		errs = append(errs, fmt.Errorf("SCENARIO must be long_horizon or migrate_only, not %q", s.scenario))
	}
	switch mode := env("PRODUCER_MODE"); mode {
	case "", "fixed":
	case "depth-target":
		s.depthTarget = true
	default:
		errs = append(errs, fmt.Errorf("PRODUCER_MODE must be fixed or depth-target, not %q", mode))
	}
	s.tokens = s.tokens && !s.depthTarget
	return s, errors.Join(errs...)
}
