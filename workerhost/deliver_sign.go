package workerhost

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
	"github.com/qtop/qtop/workerhost/sender"
)

// mostUnsigned is how many subscriptions a host names in queue_host.
const mostUnsigned = 50

// unsigned is why nothing of a subscription is sent from here.
type unsigned struct {
	ref   string
	fault *sender.Fault
	since time.Time
}

// signs tells whether the delivery can be signed here, or need not be; where it
// cannot, its subscription is left out from now on.
func (d *deliverer) signs(x *delivery) bool {
	if x.SecretRef == nil || *x.SecretRef == "" {
		return true
	}
	fault := d.resolve(*x.SecretRef)
	if fault == nil {
		return true
	}
	d.blame(x.SubscriptionID, *x.SecretRef, fault)
	return false
}

// resolve is what is wrong with a reference, and warns once about secrets that are
// weak.
func (d *deliverer) resolve(ref string) *sender.Fault {
	_, fault := d.h.opts.Secrets.Look(ref)
	if fault == nil {
		if weak := d.h.opts.Secrets.Weak(ref); weak != nil && !d.warned[ref] {
			d.warned[ref] = true
			d.h.log.Warn("weak signing secret", "loop", d.l.name, "reason", weak.What, "do", weak.Do)
		}
	}
	return fault
}

func (d *deliverer) blame(sub int64, ref string, fault *sender.Fault) {
	was, known := d.unsigned[sub]
	if known && was.ref == ref && *was.fault == *fault {
		return
	}
	since := time.Now()
	if known {
		since = was.since
	}
	d.unsigned[sub] = unsigned{ref, fault, since}
	d.h.log.Warn("cannot sign: the subscription is left to other hosts", "loop", d.l.name, "subscription_id", sub, "reason", fault.What, "do", fault.Do)
	d.tellUnsigned()
}

// tellUnsigned has the next beat say it, now.
func (d *deliverer) tellUnsigned() {
	var all []queue.Unsigned
	for _, sub := range slices.Sorted(maps.Keys(d.unsigned)) {
		u := d.unsigned[sub]
		all = append(all, queue.Unsigned{Subscription: sub, What: queue.Clean(u.fault.What), Do: queue.Clean(u.fault.Do), Since: u.since.UTC()})
	}
	slices.SortStableFunc(all, func(a, b queue.Unsigned) int { return cmp.Compare(a.Since.UnixNano(), b.Since.UnixNano()) })
	d.l.setUnsigned(all[:min(len(all), mostUnsigned)])
	d.h.beatNow()
}

// lookAgain drops the subscriptions that can be signed by now, that have another
// reference or that are gone.
func (d *deliverer) lookAgain(ctx context.Context) {
	if len(d.unsigned) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, tickWithin)
	defer cancel()
	refs, err := d.h.client.SecretRefs(ctx, slices.Sorted(maps.Keys(d.unsigned)))
	if err != nil {
		d.l.erred(err)
		return
	}
	changed := false
	for sub, u := range d.unsigned {
		ref := refs[sub]
		var fault *sender.Fault
		if ref == u.ref {
			fault = d.resolve(ref)
		}
		if fault != nil {
			d.blame(sub, ref, fault)
			continue
		}
		delete(d.unsigned, sub)
		changed = true
		if ref == u.ref {
			d.h.log.Info("can sign again", "loop", d.l.name, "subscription_id", sub)
		}
	}
	if changed {
		d.look = true
		d.tellUnsigned()
	}
}
