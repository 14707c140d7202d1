package main

// Parts 6 and 7: how an old snapshot and finished jobs slow the work rate.

import "context"

func (b *bench) heldSnapshot(ctx context.Context) part {
	from, n := b.scale(150_000, 15_000), b.scale(250_000, 25_000)
	var cs []contender
	for _, s := range []system{qtopSystem(qtopName), rawSystem()} {
		for _, held := range []bool{false, true} {
			name := s.name
			if held {
				name += ", old snapshot held"
			}
			cs = append(cs, b.fed(name, s.template, func(ctx context.Context, d *database, put put) error {
				if held {
					release, err := holdSnapshot(ctx, d)
					if err != nil {
						return err
					}
					defer release()
				}
				return s.worked(ctx, d, from, n, put)
			}))
		}
	}
	f := b.contest(ctx, cs...)
	ratio := func(name string, floor, stretch limit) goal {
		return goal{"work rate with an old snapshot held ÷ without, " + name, f.get(name+", old snapshot held", rateFigure),
			f.get(name, rateFigure), "without", floor, stretch}
	}
	return part{title: "old snapshot", figs: f, goals: []goal{
		ratio(qtopName, atLeast(0.7), atLeast(0.9)), ratio(rawName, limit{}, limit{}),
	}, notes: []string{"a REPEATABLE READ transaction in another session is open for the whole run; the rate is taken after " +
		number(float64(from)) + " of " + number(float64(n)) + " jobs; the raw loop claims from the head each time"}}
}

// holdSnapshot opens a transaction that holds the current snapshot of PostgreSQL until release is
// called.
func holdSnapshot(ctx context.Context, d *database) (release func(), err error) {
	tx, err := d.pool.Begin(ctx)
	if err == nil {
		_, err = tx.Exec(ctx, "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
	}
	if err == nil {
		_, err = tx.Exec(ctx, "SELECT count(*) FROM pg_class")
	}
	return func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }, err
}

func (b *bench) growth(ctx context.Context) part {
	n := b.scale(100_000, 10_000)
	small, big, bigName := 10_000, b.scale(1_000_000, 100_000), "1 M finished"
	if b.quick {
		bigName = "100 k finished"
	}
	s := qtopSystem(qtopName)
	over := func(name string, finished int) contender {
		return b.fed(name, history(finished, 0), func(ctx context.Context, d *database, put put) error {
			rate, err := s.work(ctx, d, 0, n)
			if err == nil {
				put("a job", "µs", 1e6/rate)
			}
			return err
		})
	}
	f := b.contest(ctx, over("10 k finished", small), over(bigName, big))
	return part{title: "growth", figs: f, goals: []goal{{"cost per job at " + bigName + " ÷ at 10 k",
		f.get(bigName, "a job"), f.get("10 k finished", "a job"), "10 k finished", atMost(1.2), atMost(1.05)}}}
}
