package workerhost_test

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/qtop/qtop/pgclient"
	"github.com/qtop/qtop/workerhost"
	"github.com/qtop/qtop/workerhost/handler"
	"github.com/qtop/qtop/workerhost/sender"
)

// A host that runs jobs of one kind in Go. Before that, a workflow_admin must register its
// executor and add a job subscription for the kind.
func ExampleOptions_handlers() {
	client, err := pgclient.Open(context.Background(), pgclient.Options{DSN: "postgres://host@db.example/app", WorkConns: 8})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()
	host, err := workerhost.New(client, workerhost.Options{
		ID: "thumbs-1", Executor: "thumbs", Loops: []string{"job_executor", "job_queue_default", "lease_reaper"},
		Handlers: map[string]handler.Handler{
			"thumbnail": handler.Func(func(ctx context.Context, job handler.Job) error {
				if string(job.Payload) == "{}" { // what a job without a payload has
					return handler.Permanent(handler.Coded("NO_PICTURE", fmt.Errorf("job %s names no picture", job.ID)))
				}
				return nil // job.Payload is JSON; ctx ends when the lease is lost or the host stops
			}),
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(len(host.Status().Loops) > 0) // host.Run(ctx) works until ctx ends
	// Output: true
}

// A host that sends webhooks, signed with a secret from its environment. Its Sender also allows
// receivers in the company's network; without such receivers Options.Sender may be nil.
func ExampleOptions_webhooks() {
	client, err := pgclient.Open(context.Background(), pgclient.Options{DSN: "postgres://host@db.example/app", WorkConns: 8})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()
	secrets, err := sender.NewSecrets([]sender.SecretSource{{Ref: "acme", From: "env:ACME_SECRET"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	outgoing := sender.New(sender.Config{Version: "1.0", Concurrency: 64, Allow: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}})
	defer outgoing.Close()
	host, err := workerhost.New(client, workerhost.Options{ID: "hooks-1", Sender: outgoing, Secrets: secrets}) // all loops
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(host.Ready()) // host.Run(ctx) works until ctx ends
	// Output: loop iu_outbound_default is stopped
}
