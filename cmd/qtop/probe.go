package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/qtop/qtop/pgclient/actions"
	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/workerhost/sender"
)

// probeTimeout is the time limit of a whole test request.
const probeTimeout = 15 * time.Second

// probeType is the event type of a test request, which no event has.
const probeType = "qtop.verify"

// probe sends one test request to the URL of a webhook subscription, under the
// settings of this process. The checks of the address and the signature are
// those of a worker host. clockAhead is how far the clock of the database server is ahead of this
// machine's.
func (a *app) probe(ctx context.Context, url, secretRef string, subscription int64, clockAhead time.Duration) (actions.ProbeAnswer, error) {
	now := time.Now().Add(clockAhead).UTC().Format("2006-01-02T15:04:05.000000Z") // as in deliveries
	body, err := json.Marshal(map[string]any{"type": probeType, "subscription": subscription, "created_at": now})
	if err != nil {
		return actions.ProbeAnswer{}, err
	}
	r := sender.Request{
		URL: url, ID: "qtop_verify_" + rand.Text(), Body: body, Timeout: probeTimeout, ClockAhead: clockAhead,
		Header: map[string]string{"webhook-event-type": probeType, "webhook-event-created": now},
	}
	if secretRef != "" {
		secrets, err := sender.NewSecrets(secretSources(a.settings.Delivery.Secrets))
		if err != nil {
			return actions.ProbeAnswer{}, problems(err)
		}
		keys, fault := secrets.Look(secretRef)
		if fault != nil {
			return actions.ProbeAnswer{}, queue.NewError(queue.KindFailed, "nothing was sent, this process cannot sign: "+fault.What, "webhook verify",
				fault.Do+"; or run it where the worker host runs, with its settings")
		}
		r.Secrets = keys
	}
	s := sender.New(sender.Config{Version: version(), Allow: a.settings.Delivery.AllowNetworks, PlainHTTP: a.settings.Delivery.AllowPlainHTTP})
	defer s.Close()
	res := s.Send(ctx, r)
	if res.Delivered {
		return actions.ProbeAnswer{Delivered: true, Answer: "HTTP_" + strconv.Itoa(res.Status), Took: res.Took}, nil
	}
	return actions.ProbeAnswer{Answer: strings.TrimSpace(res.Code + " " + res.Detail), Took: res.Took}, nil
}
