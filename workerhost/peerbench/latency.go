package main

// Part 2: the time from just before an insert to the start of the job's handler, with an idle
// queue and with a steady load.

import (
	"context"
	"time"
)

func (b *bench) wakeLatency(ctx context.Context) part {
	loads := []struct {
		name     string
		n        int
		inFlight int
		gap      func() time.Duration
	}{
		{"idle", b.scale(2000, 100), 1, idlePauses},
		{"1,000/s", b.scale(10_000, 500), 32, everyMillisecond},
	}
	var cs []contender
	for _, s := range []system{qtopSystem(qtopElsewhereName), riverSystem(riverElsewhereName), qtopSystem(qtopOneName), riverSystem(riverName),
		qtopSystem(qtopSQLName), tablesSystem(), rawSystem()} {
		cs = append(cs, contender{s.name, func(ctx context.Context, put put) error {
			for _, l := range loads {
				if err := b.waited(ctx, s, l.name, l.n, l.inFlight, l.gap, put); err != nil {
					return err
				}
			}
			return nil
		}})
	}
	f := b.contest(ctx, cs...)
	p := part{title: "latency", figs: f, notes: []string{
		"idle: single inserts with random pauses of 10 to 30 ms; 1,000/s: one insert each millisecond, up to 32 in flight; the first tenth " +
			"of the inserts, while connections open and plans are made, does not count",
		"qtop's host runs all loops; nobody watches, for that see make bench-steady. \"producer elsewhere\": another process inserts, with JobEnqueue, " +
			"which sends at most one signal per 2 ms, by the trigger if the last is older, or with River's client. Special cases: \"one program\" " +
			"and River without an addition: the worker's own client inserts, with qtop so that the claim is in the transaction of the insert; " +
			"\"SQL producer\": fn_job_enqueue in bare SQL, the trigger sends the signal; the raw loop ends when the claim has returned",
	}}
	for _, of := range []struct {
		figure       string
		floor, aimed float64
	}{{"idle p50", 1, 0.6}, {"idle p99", 1, 0.6}, {"1,000/s p50", 1, 0.4}, {"1,000/s p99", 1, 0.4}} {
		for _, pair := range [][2]string{{qtopElsewhereName, riverElsewhereName}, {qtopSQLName, riverElsewhereName}, {qtopOneName, riverName}, {tablesName, riverName}} {
			who, peer := pair[0], pair[1]
			p.goals = append(p.goals, goal{"insert → handler start, " + of.figure + ", " + who, f.get(who, of.figure),
				f.get(peer, of.figure), peer, atMost(of.floor), atMost(of.aimed)})
		}
	}
	return p
}

func (b *bench) waited(ctx context.Context, s system, load string, n, inFlight int, gap func() time.Duration, put put) error {
	d, err := b.fresh(ctx, s.template)
	if err != nil {
		return err
	}
	defer d.drop()
	took, err := s.latency(ctx, d, n, inFlight, gap)
	if err != nil {
		return err
	}
	for _, q := range []struct {
		name string
		at   float64
	}{{"p50", 0.5}, {"p99", 0.99}} {
		put(load+" "+q.name, "ms", float64(quantile(took, q.at).Microseconds())/1000)
	}
	return nil
}
