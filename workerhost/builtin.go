package workerhost

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/pgclient/work"
	"github.com/qtop/qtop/workerhost/handler"
)

// withBuiltIn returns the given handlers plus the built-in ones, which run the tick workers of
// the catalogue as jobs. It fails if a given handler is nil or its kind is a built-in kind.
func withBuiltIn(client *work.Client, given map[string]handler.Handler) (map[string]handler.Handler, error) {
	all := make(map[string]handler.Handler, len(given))
	for _, w := range catalogue() {
		if w.name != loopJobs {
			all[w.name] = tickHandler(client, w.name)
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(given)) {
		bad := func(what, do string) error {
			return queue.NewError(queue.KindConfig, what, "handlers, kind "+kind, do)
		}
		switch {
		case all[kind] != nil:
			return nil, bad("this job kind is built in", "give your handler another kind")
		case given[kind] == nil:
			return nil, bad("the handler is nil", "set a handler or remove the entry")
		}
		all[kind] = given[kind]
	}
	return all, nil
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
