package main

import (
	"errors"
	"time"

	"github.com/spf13/pflag"

	"github.com/qtop/qtop/pgclient/queue"
)

// durationFlag adds a flag whose value is a duration as it is written everywhere in qtop, also with
// days and weeks; in d is the default.
func durationFlag(f *pflag.FlagSet, d *time.Duration, name, help string) {
	f.Var((*durationValue)(d), name, help)
}

type durationValue time.Duration

func (d *durationValue) Set(text string) error {
	v, ok := queue.Duration(text)
	if !ok {
		return errors.New("write it like 90s, 30m, 2h30m, 1d or 1w")
	}
	*d = durationValue(v)
	return nil
}

func (d *durationValue) String() string {
	if *d == 0 {
		return "" // the help names no default
	}
	return queue.DurationText(time.Duration(*d))
}

func (*durationValue) Type() string { return "duration" }
