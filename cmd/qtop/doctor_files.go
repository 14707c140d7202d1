package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/qtop/qtop/config"
	"github.com/qtop/qtop/pgclient/inspect"
	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/pgclient/queue/secrecy"
	"github.com/qtop/qtop/workerhost/sender"
)

// Checks of `qtop doctor`: access to files, and signing secrets.

// fileFindings checks the files that every verb and a worker host read, and the
// signing secrets of this machine.
func fileFindings(_ context.Context, x patient) (all []finding) {
	for _, f := range append(x.files, hostFiles(x.settings)...) {
		all = append(all, finding{"note", "files", queue.Clean(secrecy.Mask(f.What + " (" + f.use + ")")), f.Do})
	}
	secrets, err := sender.NewSecrets(secretSources(x.settings.Delivery.Secrets))
	if err != nil {
		wrong, _ := config.AsProblems(problems(err))
		for _, p := range wrong {
			all = append(all, finding{"bad", "signing", queue.Clean(secrecy.Mask(p.What + " (" + p.Where + ")")), p.Do})
		}
		return all
	}
	for _, ref := range secrets.Refs() {
		if _, fault := secrets.Look(ref); fault != nil {
			all = append(all, finding{"note", "signing", queue.Clean(secrecy.Mask("on this machine: " + fault.What)), fault.Do})
		} else if weak := secrets.Weak(ref); weak != nil {
			all = append(all, finding{"note", "signing", queue.Clean(secrecy.Mask(weak.What)), weak.Do})
		}
	}
	if len(all) == 0 {
		return []finding{{"ok", "files", queue.Clean("nobody else may change the configuration, the handlers or the secrets"), ""}}
	}
	return all
}

// shownHosts is the greatest number of hosts that a finding names.
const shownHosts = 5

// signingFindings lists the webhook subscriptions whose requests a live host
// cannot sign, or could not sign at the next delivery. What cannot be read is
// one finding more.
func signingFindings(ctx context.Context, x patient) (all []finding) {
	parts := []func(context.Context, patient) ([]finding, error){signingFaults, secretsThatHostsLack, unsignedSubscriptions, misformedURLs}
	var unread []finding
	failed := 0
	for _, part := range parts {
		found, err := part(ctx, x)
		if err != nil {
			failed++
			if f := x.unread("signing", err); !slices.Contains(unread, f) {
				unread = append(unread, f)
			}
		}
		all = append(all, found...)
	}
	for _, f := range unread {
		if f.State == "note" && failed < len(parts) {
			f.Found = queue.Clean("in part " + f.Found.String())
		}
		all = append(all, f)
	}
	if len(all) == 0 {
		return []finding{{"ok", "signing", queue.Clean("every live host can sign what it sends"), ""}}
	}
	return all
}

// signingFaults lists the subscriptions for which a live host sends nothing.
func signingFaults(ctx context.Context, x patient) (all []finding, _ error) {
	faults, err := inspect.SigningFaults(ctx, x.client)
	if err != nil || len(faults) == 0 {
		return nil, err
	}
	for _, f := range faults {
		state := queue.Choose(f.Nowhere, "bad", "note") // another host sends its requests
		all = append(all, finding{state, "signing", queue.Clean(fmt.Sprintf("host %s sends nothing of subscription %d: %s", f.Host, f.Subscription, f.What)), f.Do.String()})
	}
	return append(all, leftOut("signing", len(faults), faults[0].Of)...), nil
}

// secretsThatHostsLack lists the secrets that hosts would miss at the next
// delivery.
func secretsThatHostsLack(ctx context.Context, x patient) (all []finding, _ error) {
	unknown, err := inspect.UnknownSecrets(ctx, x.client)
	if err != nil || len(unknown) == 0 {
		return nil, err
	}
	for _, u := range unknown {
		who := "host " + texts(u.Hosts[:min(len(u.Hosts), shownHosts)])
		if more := len(u.Hosts) - shownHosts; more > 0 {
			who += fmt.Sprintf(" and %d more", more)
		}
		all = append(all, finding{queue.Choose(u.Nowhere, "bad", "note"), "signing", queue.Clean(fmt.Sprintf("%s cannot sign with secret_ref %q, which %s: the first is %d", who, u.Ref,
			queue.Plural(u.Subscriptions, "active webhook subscription names", "active webhook subscriptions name"), u.First)),
			"add it to delivery.secrets of the host, or qtop webhook rotate-secret ID --secret NAME --reason R to sign with one that it has"})
	}
	return append(all, leftOut("signing", len(unknown), unknown[0].Of)...), nil
}

// unsignedSubscriptions counts the subscriptions whose requests carry no
// signature.
func unsignedSubscriptions(ctx context.Context, x patient) ([]finding, error) {
	unsigned, err := inspect.Unsigned(ctx, x.client)
	if err != nil || unsigned == 0 {
		return nil, err
	}
	return []finding{{"note", "signing", queue.Clean(queue.Plural(unsigned, "active webhook subscription sends", "active webhook subscriptions send") + " unsigned"),
		"their receivers cannot verify the sender; sign them: qtop webhook rotate-secret ID --secret NAME --reason R (docs/webhooks.md)"}}, nil
}

// misformedURLs lists the subscriptions whose URL has a form that is no longer
// accepted.
func misformedURLs(ctx context.Context, x patient) (all []finding, _ error) {
	misformed, of, err := inspect.Misformed(ctx, x.client)
	for _, id := range misformed {
		all = append(all, finding{"bad", "signing", queue.Clean(fmt.Sprintf("the callback URL of subscription %d is not https://HOST/PATH: nothing can be sent to it, and what viewers see as its endpoint may be a secret of it", id)),
			fmt.Sprintf("as a member of subscription_admin: UPDATE public.subscriptions SET callback_url = 'https://HOST/PATH' WHERE id = %d; replace the token or password that it held", id)})
	}
	return append(all, leftOut("signing", len(misformed), of)...), err
}
