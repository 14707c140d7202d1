package webhooks

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

// callTimeout bounds the statements for which the owner of the loop waits; a tick takes a few
// milliseconds.
const callTimeout = 5 * time.Second

// maxUnsigned is how many webhook subscriptions without a usable secret a host lists in queue_host at
// most, maxUnsignedText how many bytes each text of the list has. A longer list would not fit into
// queue_host.progress, and its host would count as dead. No view shows more of a text.
const maxUnsigned, maxUnsignedText = 50, 400

// keys holds the webhook subscriptions whose deliveries this host cannot sign. That is a fault of
// the configuration, so no attempt is counted:
//
//  1. Claims skip the subscription. Deliveries that were claimed already are handed back for a
//     host that has the secret.
//  2. The next heartbeat writes the reason to queue_host.progress.
//  3. Each poll checks whether the secret is available now.
//
// One goroutine owns a keys.
type keys struct {
	*Worker
	l       *loop.Loop
	missing map[int64]unsigned // by id of the webhook subscription
	warned  map[string]bool    // references to weak secrets that were logged
}

// unsigned is the reason why this host does not send the deliveries of a webhook subscription.
type unsigned struct {
	ref   string
	fault *sender.Fault
	since time.Time
}

// canSign reports whether this host can sign the delivery, or the delivery needs no signature. If
// not, claims skip its webhook subscription from now on.
func (k *keys) canSign(x *delivery) bool {
	if x.SecretRef == nil || *x.SecretRef == "" {
		return true
	}
	fault := k.resolve(*x.SecretRef)
	if fault == nil {
		return true
	}
	k.markUnsigned(x.SubscriptionID, *x.SecretRef, fault)
	return false
}

// resolve returns the fault of a reference, or nil if its secret can be used. It logs each weak
// secret once.
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

func (k *keys) markUnsigned(sub int64, ref string, fault *sender.Fault) {
	was, known := k.missing[sub]
	if known && was.ref == ref && *was.fault == *fault {
		return
	}
	since := time.Now()
	if known {
		since = was.since
	}
	k.missing[sub] = unsigned{ref, fault, since}
	k.l.Log.Warn("cannot sign: the webhook subscription is left to other hosts", "subscription_id", sub, "reason", fault.What, "do", fault.Do)
	k.publish()
}

// publish sends a heartbeat at once, with the list of the webhook subscriptions that cannot be
// signed.
func (k *keys) publish() {
	var all []queue.Unsigned
	for _, sub := range slices.Sorted(maps.Keys(k.missing)) {
		u := k.missing[sub]
		all = append(all, queue.Unsigned{
			Subscription: sub, What: queue.Clean(u.fault.What).Cut(maxUnsignedText), Do: queue.Clean(u.fault.Do).Cut(maxUnsignedText), Since: u.since.UTC(),
		})
	}
	slices.SortStableFunc(all, func(a, b queue.Unsigned) int { return cmp.Compare(a.Since.UnixNano(), b.Since.UnixNano()) })
	k.l.SetUnsigned(all[:min(len(all), maxUnsigned)])
	k.OnUnsigned()
}

// recheck drops the webhook subscriptions that can be signed now, that have another reference
// now, or that were deleted.
func (k *keys) recheck(ctx context.Context) {
	if len(k.missing) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	refs, err := k.Client.SecretRefs(ctx, slices.Sorted(maps.Keys(k.missing)))
	if err != nil {
		k.l.RecordError(err)
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
			k.markUnsigned(sub, ref, fault)
			continue
		}
		delete(k.missing, sub)
		changed = true
		if ref == u.ref {
			k.l.Log.Info("can sign again", "subscription_id", sub)
		}
	}
	if changed {
		k.publish()
	}
}
