package main

// Part 1: how many empty jobs are run per second.

import "context"

const (
	toRiver    = "work rate ÷ River at its benchmark's settings"
	toGraphile = "work rate ÷ graphile-worker, its performance test's settings, 2 processes"
	toRaw      = "work rate ÷ the raw loop of the same design"
	rateFigure = "jobs worked"
	perSecond  = "/s"
)

func (b *bench) workRate(ctx context.Context) part {
	if b.graphile == nil {
		b.graphile = installGraphile(ctx)
	}
	n := b.scale(100_000, 10_000)
	systems := []system{qtopSystem(qtopName), riverSystem(riverName), rawSystem(), graphileSystem(b.graphile)}
	var cs []contender
	for _, s := range systems {
		cs = append(cs, b.fed(s.name, s.template, func(ctx context.Context, d *database, put put) error {
			return s.worked(ctx, d, 0, n, put)
		}))
	}
	f := b.contest(ctx, cs...)
	ours := f.get(qtopName, rateFigure)
	return part{title: "work", figs: f, goals: []goal{
		{toRiver, ours, f.get(riverName, rateFigure), riverName, atLeast(2), atLeast(3.5)},
		{toGraphile, ours, f.get(graphileName, rateFigure), graphileName, atLeast(1), limit{}},
		{toRaw, ours, f.get(rawName, rateFigure), rawName, limit{}, atLeast(0.8)},
	}, notes: []string{
		number(float64(n)) + " jobs are inserted first; the time runs from the start of the workers (graphile-worker: from when " +
			"its processes are connected) to the last completion in the database: a drain, no steady load; qtop's host runs all loops",
		"the raw loop is 4 connections, claim and complete 1,000 at a time, without a host; finished jobs are kept " +
			"by all but graphile-worker, which deletes them",
	}}
}

// worked records how many jobs per second the queue runs.
func (s system) worked(ctx context.Context, d *database, from, n int, put put) error {
	rate, err := s.work(ctx, d, from, n)
	if err == nil {
		put(rateFigure, perSecond, rate)
	}
	return err
}
