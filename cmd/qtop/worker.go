package main

// This file is `qtop worker`: the host alone.

import (
	"context"
	"io"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/qtop/qtop/config"
	"github.com/qtop/qtop/pgclient"
	"github.com/qtop/qtop/pgclient/queue/secrecy"
	"github.com/qtop/qtop/workerhost"
	"github.com/qtop/qtop/workerhost/handler"
	"github.com/qtop/qtop/workerhost/sender"
)

type lookup = func(context.Context, string) ([]netip.Addr, error)

// host makes a worker host of the settings. loops: nil = the settings' own; own:
// handlers beside the settings'; lookup: nil = the system's resolver.
func (a *app) host(client *pgclient.Client, loops []string, log *slog.Logger, own map[string]handler.Handler, lookup lookup) (*workerhost.Host, error) {
	s := a.settings
	// An endpoint of a job does its work before it answers: its header may take as
	// long as the lease can be renewed.
	jobSender := sender.New(sender.Config{
		Version: version(), Allow: s.Delivery.AllowNetworks, Concurrency: s.Concurrency, Headers: longestTry, Lookup: lookup,
	})
	if loops == nil && len(s.Loops) > 0 {
		loops = s.Loops
	}
	handlers := map[string]handler.Handler{}
	if len(loops) == 0 || slices.Contains(loops, "job_executor") {
		var err error
		if handlers, err = handler.Parse(specs(s.Handlers), jobSender); err != nil {
			return nil, problems(err)
		}
	}
	maps.Copy(handlers, own)
	secrets, err := sender.NewSecrets(secretSources(s.Delivery.Secrets))
	if err != nil {
		return nil, err
	}
	return workerhost.New(client, workerhost.Options{
		ID: s.HostID, Version: version(), Loops: loops, Concurrency: s.Concurrency, PerEndpoint: s.Delivery.PerEndpoint,
		Grace: s.Grace, Log: log, Secrets: secrets, Handlers: handlers, Executor: s.Executor, JobTimeout: longestTry,
		Sender: sender.New(sender.Config{
			Version: version(), Allow: s.Delivery.AllowNetworks, Concurrency: s.Concurrency, Lookup: lookup,
		}),
	})
}

// longestTry is as long as a try may last; each handler has a limit of its own.
const longestTry = 24 * time.Hour

func specs(in []config.Handler) []handler.Spec {
	var out []handler.Spec
	for _, h := range in {
		out = append(out, handler.Spec{Kind: h.Kind, Command: h.Command, URL: h.URL, Timeout: h.Timeout})
	}
	return out
}

// problems makes a line of each error of a joined one.
func problems(err error) error {
	all, ok := err.(interface{ Unwrap() []error }) // as errors.Join makes them
	if !ok {
		return err
	}
	var out config.Problems
	for _, one := range all.Unwrap() {
		if q, ok := asQueueError(one); ok {
			out = append(out, config.Problem{What: q.What.String(), Where: q.Where.String(), Do: q.Do.String()})
		} else {
			out = append(out, config.Problem{What: one.Error()})
		}
	}
	return out
}

func workerCmd(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "worker", Short: "Run the worker host: tick every worker, send the webhooks, work on jobs", Args: cobra.NoArgs,
		Long: "Runs the loops (all, or those of --loops) until a signal. The first signal drains within --grace and hands\n" +
			"back what is unfinished; the second aborts. Any number of hosts share one database.",
		RunE: a.connected(hostConns, func(ctx context.Context, client *pgclient.Client, _ []string) error { return a.work(ctx, client) }),
	}
}

func (a *app) work(ctx context.Context, client *pgclient.Client) error {
	log := hostLog(a.errs)
	slog.SetDefault(log)
	host, err := a.host(client, nil, log, nil, nil)
	if err != nil {
		return err
	}
	if a.settings.MetricsAddr != "" {
		addr, err := host.ServeMetrics(ctx, a.settings.MetricsAddr)
		if err != nil {
			return usage(err.Error(), "metrics_addr", "choose a free address such as 127.0.0.1:9187")
		}
		log.Info("metrics", "address", addr.String())
	}
	for _, f := range append(a.files, hostFiles(a.settings)...) {
		log.Warn("file open to others", "what", f.What, "do", f.Do, "for", f.use)
	}
	log.Info("worker host starts", "host_id", a.settings.HostID, "version", version())
	err = host.Run(ctx)
	log.Info("worker host ended", "host_id", a.settings.HostID)
	return err
}

// hostConns are the connections of a worker host beside its listener: ticks,
// claims and reports, each for a moment.
const hostConns = 8

// hostLog is the log of a host that has the terminal for itself.
func hostLog(w io.Writer) *slog.Logger {
	if _, masked := w.(secrecy.Writer); !masked {
		w = secrecy.Writer{W: w}
	}
	if terminal(w) {
		return slog.New(slog.NewTextHandler(w, nil))
	}
	return slog.New(slog.NewJSONHandler(w, nil))
}
