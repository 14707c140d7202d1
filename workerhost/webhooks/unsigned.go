package webhooks

// This file keeps what cannot be signed here: a fault of the configuration costs
// no attempt. Its subscriptions are left out of the claims, what was claimed goes
// back for a host that has the secret, queue_host says why, and each poll looks
// whether the secret is there by now.

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/workerhost/loop"
	"github.com/qtop/qtop/workerhost/sender"
)

// tickWithin bounds what the loop asks beside its work; a tick is a few milliseconds.
const tickWithin = 5 * time.Second

// mostUnsigned is how many subscriptions a host names in queue_host.
const mostUnsigned = 50

// keys knows what can be signed here. One goroutine owns it.
type keys struct {
	*Worker
	l       *loop.Loop
	missing map[int64]unsigned // by subscription
	warned  map[string]bool    // references of weak secrets that were named
}

// unsigned is why nothing of a subscription is sent from here.
type unsigned struct {
	ref   string
	fault *sender.Fault
	since time.Time
}

// signs tells whether the delivery can be signed here, or need not be; where it
// cannot, its subscription is left out from now on.
func (k *keys) signs(x *delivery) bool {
	if x.SecretRef == nil || *x.SecretRef == "" {
		return true
	}
	fault := k.resolve(*x.SecretRef)
	if fault == nil {
		return true
	}
	k.blame(x.SubscriptionID, *x.SecretRef, fault)
	return false
}

// resolve is what is wrong with a reference, and warns once about secrets that are
// weak.
func (k *keys) resolve(ref string) *sender.Fault {
	_, fault := k.Secrets.Look(ref)
	if fault == nil {
		if weak := k.Secrets.Weak(ref); weak != nil && !k.warned[ref] {
			k.warned[ref] = true
			k.l.Log.Warn("weak signing secret", "reason", weak.What, "do", weak.Do)
		}
	}
	return fault
}

func (k *keys) blame(sub int64, ref string, fault *sender.Fault) {
	was, known := k.missing[sub]
	if known && was.ref == ref && *was.fault == *fault {
		return
	}
	since := time.Now()
	if known {
		since = was.since
	}
	k.missing[sub] = unsigned{ref, fault, since}
	k.l.Log.Warn("cannot sign: the subscription is left to other hosts", "subscription_id", sub, "reason", fault.What, "do", fault.Do)
	k.tell()
}

// tell has the next beat say it, now.
func (k *keys) tell() {
	var all []queue.Unsigned
	for _, sub := range slices.Sorted(maps.Keys(k.missing)) {
		u := k.missing[sub]
		all = append(all, queue.Unsigned{Subscription: sub, What: queue.Clean(u.fault.What), Do: queue.Clean(u.fault.Do), Since: u.since.UTC()})
	}
	slices.SortStableFunc(all, func(a, b queue.Unsigned) int { return cmp.Compare(a.Since.UnixNano(), b.Since.UnixNano()) })
	k.l.SetUnsigned(all[:min(len(all), mostUnsigned)])
	k.Unsigned()
}

// lookAgain drops the subscriptions that can be signed by now, that have another
// reference or that are gone.
func (k *keys) lookAgain(ctx context.Context) {
	if len(k.missing) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, tickWithin)
	defer cancel()
	refs, err := k.Client.SecretRefs(ctx, slices.Sorted(maps.Keys(k.missing)))
	if err != nil {
		k.l.Erred(err)
		return
	}
	changed := false
	for sub, u := range k.missing {
		ref := refs[sub]
		var fault *sender.Fault
		if ref == u.ref {
			fault = k.resolve(ref)
		}
		if fault != nil {
			k.blame(sub, ref, fault)
			continue
		}
		delete(k.missing, sub)
		changed = true
		if ref == u.ref {
			k.l.Log.Info("can sign again", "subscription_id", sub)
		}
	}
	if changed {
		k.tell()
	}
}
