package main

import (
	"context"

	"github.com/qtop/qtop/pgclient"
	"github.com/qtop/qtop/pgclient/inspect"
)

// `qtop doctor --staging`.

func staging(ctx context.Context, a *app, c *pgclient.Client) error {
	lines, err := inspect.Staging(ctx, c)
	if err != nil {
		return err
	}
	bad := false
	for _, l := range lines {
		bad = bad || l.Bad()
		if a.output != "json" {
			a.say(l.Key + "=" + l.Value)
		}
	}
	if a.output == "json" {
		a.encode(a.out, lines)
	}
	if bad {
		return &exitError{1}
	}
	return nil
}
