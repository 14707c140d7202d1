package main

import (
	"context"
	"fmt"

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
// cannot sign, or could not sign at the next delivery.
func signingFindings(ctx context.Context, x patient) (all []finding) {
	faults, hosts, err := inspect.SigningFaults(ctx, x.client)
	if err != nil {
		return []finding{x.unread("signing", err)}
	}
	of := map[int64]map[string]bool{}
	for _, f := range faults {
		if of[f.Subscription] == nil {
			of[f.Subscription] = map[string]bool{}
		}
		of[f.Subscription][f.Host.String()] = true
	}
	for _, f := range faults {
		// If another host can sign for the subscription, the finding is only a
		// note.
		state := queue.Choose(len(of[f.Subscription]) >= hosts, "bad", "note")
		all = append(all, finding{state, "signing", queue.Clean(fmt.Sprintf("host %s sends nothing of subscription %d: %s", f.Host, f.Subscription, f.What)), f.Do.String()})
	}
	unknown, err := inspect.UnknownSecrets(ctx, x.client)
	if err != nil {
		return []finding{x.unread("signing", err)}
	}
	for _, u := range unknown {
		who := "host " + texts(u.Hosts[:min(len(u.Hosts), shownHosts)])
		if more := len(u.Hosts) - shownHosts; more > 0 {
			who += fmt.Sprintf(" and %d more", more)
		}
		all = append(all, finding{queue.Choose(u.Nowhere, "bad", "note"), "signing", queue.Clean(fmt.Sprintf("%s cannot sign with secret_ref %q, which %s: the first is %d", who, u.Ref,
			queue.Plural(u.Subscriptions, "active webhook subscription names", "active webhook subscriptions name"), u.First)),
			"add it to delivery.secrets of the host, or qtop webhook rotate-secret ID --secret-ref REF --reason R to sign with one that it has"})
	}
	unsigned, err := inspect.Unsigned(ctx, x.client)
	if err != nil {
		return []finding{x.unread("signing", err)}
	}
	if unsigned > 0 {
		all = append(all, finding{"note", "signing", queue.Clean(queue.Plural(unsigned, "active webhook subscription sends", "active webhook subscriptions send") + " unsigned"),
			"their receivers cannot verify the sender: give them a secret_ref (docs/webhooks.md)"})
	}
	misformed, err := inspect.Misformed(ctx, x.client)
	if err != nil {
		return []finding{x.unread("signing", err)}
	}
	for _, id := range misformed {
		all = append(all, finding{"bad", "signing", queue.Clean(fmt.Sprintf("the callback URL of subscription %d is not https://HOST/PATH: nothing can be sent to it, and what viewers see as its endpoint may be a secret of it", id)),
			fmt.Sprintf("as a member of subscription_admin: UPDATE public.subscriptions SET callback_url = 'https://HOST/PATH' WHERE id = %d; replace the token or password that it held", id)})
	}
	if len(all) == 0 {
		return []finding{{"ok", "signing", queue.Clean("every live host can sign what it sends"), ""}}
	}
	return all
}
