package workerhost

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/qtop/qtop/pgclient/work"
	"github.com/qtop/qtop/workerhost/handler"
)

// builtIn reports whether a job kind is the name of a tick worker, which every host runs as a job.
func builtIn(kind string) bool {
	return kind != loopJobs && slices.Contains(LoopNames(), kind)
}

// withBuiltIn returns the given handlers plus the built-in ones, which run the tick workers of
// the catalogue as jobs.
func withBuiltIn(client *work.Client, given map[string]handler.Handler) map[string]handler.Handler {
	all := maps.Clone(given)
	if all == nil {
		all = map[string]handler.Handler{}
	}
	for _, name := range LoopNames() {
		if builtIn(name) {
			all[name] = tickHandler(client, name)
		}
	}
	return all
}

// tickHandler runs a tick worker as a job.
func tickHandler(client *work.Client, worker string) handler.Handler {
	return handler.Func(func(ctx context.Context, _ handler.Job) error {
		res, err := client.Tick(ctx, worker, "operator")
		switch {
		case err != nil:
			return err
		case res.Failed:
			return handler.Coded("TICK_FAILED", errors.New(res.Error))
		case res.Skipped == "off":
			return handler.Permanent(handler.Coded("TICK_OFF", fmt.Errorf("the tick worker %s does not run: %s", worker, res.Reason)))
		}
		return nil // success: the tick worker ran, or another run of it was under way
	})
}
