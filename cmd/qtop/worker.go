package main

// `qtop worker`: a worker host without a console.

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/qtop/qtop/config"
	"github.com/qtop/qtop/pgclient"
	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/pgclient/queue/secrecy"
	"github.com/qtop/qtop/workerhost"
	"github.com/qtop/qtop/workerhost/handler"
	"github.com/qtop/qtop/workerhost/sender"
)

type lookup = func(context.Context, string) ([]netip.Addr, error)

// host returns a worker host with the current settings. loops: nil means the
// loops of the settings. own: handlers in addition to those of the settings.
// lookup: how host names are resolved, nil means by the system.
func (a *app) host(client *pgclient.Client, loops []string, log *slog.Logger, own map[string]handler.Handler, lookup lookup) (*workerhost.Host, error) {
	o, err := a.hostOptions(loops, own, lookup)
	if err != nil {
		return nil, err
	}
	o.Log = log
	return workerhost.New(client, o)
}

// hostOptions returns the options of a worker host with the current settings,
// for host. Its error lists everything in the settings that a host refuses.
func (a *app) hostOptions(loops []string, own map[string]handler.Handler, lookup lookup) (workerhost.Options, error) {
	s := a.settings
	if loops == nil && len(s.Loops) > 0 {
		loops = s.Loops
	}
	handlers, handlersErr := a.handlers(loops, lookup)
	if handlers == nil {
		handlers = map[string]handler.Handler{}
	}
	maps.Copy(handlers, own)
	secrets, secretsErr := sender.NewSecrets(secretSources(s.Delivery.Secrets))
	o := workerhost.Options{
		ID: s.HostID, Version: version(), Loops: loops, Concurrency: s.Concurrency, PerEndpoint: s.Delivery.PerEndpoint,
		Grace:   max(s.Grace, time.Millisecond), // 0 would be the default
		Secrets: secrets, Handlers: handlers, Executor: s.Executor, JobTimeout: longestAttempt, Operator: s.Actor,
		Sender: a.sender(lookup),
	}
	return o, problems(handlersErr, secretsErr, o.Check())
}

// sender returns a sender with the current settings.
func (a *app) sender(lookup lookup) *sender.Sender {
	s := a.settings
	return sender.New(sender.Config{
		Version: version(), Allow: s.Delivery.AllowNetworks, PlainHTTP: s.Delivery.AllowPlainHTTP, Concurrency: s.Concurrency, Lookup: lookup,
	})
}

// handlers returns the handlers of the settings. Its error lists everything
// that is wrong with them. If loops (nil means all) do not include the job
// executor, it returns no handlers, and their programs need not exist.
func (a *app) handlers(loops []string, lookup lookup) (map[string]handler.Handler, error) {
	if len(loops) > 0 && !slices.Contains(loops, "job_executor") {
		return map[string]handler.Handler{}, nil
	}
	return handler.Parse(specs(a.settings.Handlers), a.sender(lookup))
}

// longestAttempt is the longest time that an attempt may take; each handler also has its own limit.
const longestAttempt = 24 * time.Hour

func specs(in []config.Handler) []handler.Spec {
	var out []handler.Spec
	for _, h := range in {
		out = append(out, handler.Spec{Kind: h.Kind, Command: h.Command, URL: h.URL, Timeout: h.Timeout})
	}
	return out
}

// problems lists the problems in errors, each of which may be several joined
// ones; nil: there is none.
func problems(errs ...error) error {
	var all config.Problems
	for _, err := range errs {
		if err == nil {
			continue
		}
		joined, several := err.(interface{ Unwrap() []error }) // as errors.Join and config.Problems are
		q, ok := asQueueError(err)
		p, one := errors.AsType[config.Problem](err)
		switch {
		case several:
			more, _ := config.AsProblems(problems(joined.Unwrap()...))
			all = append(all, more...)
		case one:
			all = append(all, p)
		case ok:
			all = append(all, config.Problem{What: q.What.String(), Where: q.Where.String(), Do: q.Do.String()})
		default:
			all = append(all, config.Problem{What: err.Error()})
		}
	}
	if len(all) == 0 {
		return nil
	}
	return all
}

func workerCmd(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "worker", Example: "qtop worker --host-id worker-1 --loops webhook_worker,job_executor", Annotations: map[string]string{settingsKey: "connection listen caller host delivery"}, Short: "Run the worker host: tick every worker, send the webhooks, work on jobs", Args: cobra.NoArgs,
		Long: "Runs the loops (all, or those of --loops) until SIGTERM or SIGINT. The first drains within --grace and hands\n" +
			"back what is unfinished; the second aborts. Any number of hosts share one database. SIGHUP reads the\n" +
			"configuration again; with a terminal it drains too, and under nohup it is ignored.",
		RunE: a.connected(hostConns, func(ctx context.Context, client *pgclient.Client, _ []string) error { return a.work(ctx, client) }),
	}
}

// work runs worker hosts, one after the other, until a signal arrives. In a
// process without a terminal, a SIGHUP reads the settings again and replaces
// the host by a host with the new settings.
func (a *app) work(ctx context.Context, client *pgclient.Client) error {
	a.lines.start(sayMissing)
	log := hostLog(a.errs)
	slog.SetDefault(log)
	host, err := a.host(client, nil, log, nil, nil)
	if err != nil {
		return err
	}
	reloads := hangups(ctx)
	manager := newServiceManager(ctx, os.Getenv, log)
	for _, name := range []string{"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"} {
		_ = os.Unsetenv(name) // meant for this process, not for its handlers
	}
	defer context.AfterFunc(ctx, manager.stopping)()
	var before *configured // of the host that the current one has replaced
	for host != nil {
		now := a.configured()
		var next *workerhost.Host
		next, err = a.workUntil(ctx, client, host, reloads, manager, log)
		if next == nil && err != nil && before != nil && ctx.Err() == nil {
			next = a.workAgain(client, *before, err, manager, log)
			before = nil
		} else {
			before = &now
		}
		host = next
	}
	manager.failed(err)
	return err
}

// configured is what the settings are read into.
type configured struct {
	settings config.Settings
	files    []fileFinding
}

func (a *app) configured() configured { return configured{a.settings, a.files} }

// restore takes settings back.
func (a *app) restore(s configured) {
	a.settings, a.files = s.settings, s.files
	a.ascii.Store(s.settings.ASCII)
}

// workAgain returns a host with the settings of before, because one with the settings that were read
// again could not start: the database refuses its host id, for example. nil: there is none.
func (a *app) workAgain(client *pgclient.Client, before configured, refused error, manager *serviceManager, log *slog.Logger) *workerhost.Host {
	a.restore(before)
	host, err := a.host(client, nil, log, nil, nil)
	if err != nil {
		return nil
	}
	log.Error("no host can start with the configuration that was read again: it goes on with the old one", "error", refused.Error())
	manager.kept(refused)
	return host
}

// workUntil runs a host until ctx ends or a SIGHUP brings valid new settings.
// Then it returns the next host; nil: there is none.
func (a *app) workUntil(ctx context.Context, client *pgclient.Client, host *workerhost.Host, reloads <-chan struct{}, manager *serviceManager, log *slog.Logger) (*workerhost.Host, error) {
	if a.finished != nil { // the host before this one has ended
		a.finished()
	}
	a.finished = a.endBy(ctx, a.settings.Grace)
	run, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var following sync.WaitGroup
	defer following.Wait()
	living, gone := context.WithCancel(context.WithoutCancel(ctx)) // a host that drains still lives
	defer gone()
	if a.settings.MetricsAddr != "" {
		addr, err := a.serveMetrics(living, host)
		if err != nil {
			return nil, err
		}
		log.Info("metrics", "address", addr.String())
	}
	for _, f := range append(a.files, hostFiles(a.settings)...) {
		log.Warn(queue.Choose(f.unread, "file not read", "file open to others"), "what", f.What, "do", f.Do, "for", f.use)
	}
	if len(a.settings.Loops) == 0 || slices.Contains(a.settings.Loops, "webhook_worker") {
		a.warnOfSecrets(log)
	}
	log.Info("worker host starts", "host_id", a.settings.HostID, "version", version())
	ended := make(chan error, 1)
	go func() { ended <- host.Run(run) }()
	following.Go(func() { manager.follow(living, run, host) })
	var next *workerhost.Host
	for next == nil {
		select {
		case err := <-ended:
			reason := stopWord(ctx)
			if err != nil {
				reason = err.Error()
			}
			log.Info("worker host ended", "host_id", a.settings.HostID, "reason", queue.Clean(reason).String())
			return nil, err
		case <-reloads:
			var err error
			if next, err = a.reloaded(client, log); err != nil {
				manager.kept(err)
			}
		}
	}
	stop(errReload)
	manager.reloading()
	return next, <-ended
}

// warnOfSecrets logs each secret of the settings that cannot be used, before a delivery needs it.
func (a *app) warnOfSecrets(log *slog.Logger) {
	secrets, err := sender.NewSecrets(secretSources(a.settings.Delivery.Secrets))
	if err != nil {
		return // host has refused these settings
	}
	for _, ref := range secrets.Refs() {
		if _, fault := secrets.Look(ref); fault != nil {
			log.Warn("this host cannot use a secret: it would send no webhook that is signed with it", "reason", fault.What, "do", fault.Do)
		}
	}
}

// errReload is the cause with which a host stops when another host of the same
// process replaces it.
var errReload = errors.New("SIGHUP: configuration read again")

// stopWord returns the name of the signal that ended ctx, for the record of
// the stop; "" if ctx has not ended.
func stopWord(ctx context.Context) string {
	if err := context.Cause(ctx); err != nil {
		return err.Error()
	}
	return ""
}

// reloaded reads the settings again and returns a host with them. It returns
// an error if the settings cannot be used: the running host then continues with
// the old settings. Changed settings of the connection take effect only at the
// next start.
func (a *app) reloaded(client *pgclient.Client, log *slog.Logger) (*workerhost.Host, error) {
	before := a.configured()
	old := before.settings
	err := a.reread()
	var next *workerhost.Host
	if err == nil {
		err = fileGone(config.File(a.sources()), old)
	}
	if err == nil {
		now := &a.settings
		if now.DSN != old.DSN || now.ListenDSN != old.ListenDSN || now.Pooler != old.Pooler || !slices.Equal(now.ExpectServer, old.ExpectServer) || now.Actor != old.Actor {
			log.Warn("settings of the connection have changed: they count from the next start of this worker")
		}
		if now.ReadOnly {
			err = queue.NewError(queue.KindPermission, "read_only is set, and a worker host changes the database", "settings", "stop this worker, or take out read_only")
		} else if err = usableAddr(old.MetricsAddr, now.MetricsAddr); err == nil {
			next, err = a.host(client, nil, log, nil, nil)
		}
	}
	if err != nil {
		a.restore(before)
		log.Error("the configuration was not read again: the host goes on with the old one", "error", err.Error())
		return nil, err
	}
	log.Info("configuration read again: the host drains and starts with it")
	return next, nil
}

// fileGone returns an error if the configuration file from which the settings were read is not there any more: it
// may be being replaced, and a host with the defaults would have no handlers and no secrets.
func fileGone(path string, old config.Settings) error {
	if !slices.ContainsFunc(old.Origins(), func(o config.Origin) bool { return strings.HasPrefix(o.From, "file ") }) {
		return nil
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return queue.NewError(queue.KindConfig, "the configuration file is gone", "file "+path, "put it back, or restart this worker to do without it")
}

// usableAddr returns an error if a new address for the metrics cannot be used. The port of the
// running host is in use, but not by then.
func usableAddr(old, addr string) error {
	if addr == "" || addr == old {
		return nil
	}
	l, err := net.Listen("tcp", addr) //nolint:noctx // local
	if err == nil {
		return l.Close()
	}
	_, oldPort, _ := net.SplitHostPort(old)
	if _, port, _ := net.SplitHostPort(addr); errors.Is(err, syscall.EADDRINUSE) && port == oldPort {
		return nil
	}
	return usage(err.Error(), "metrics_addr "+addr, "choose a free address such as 127.0.0.1:9187")
}

// serveMetrics serves the metrics of host until ctx ends. For up to 1 s it
// waits until the previous host has released the address.
func (a *app) serveMetrics(ctx context.Context, host *workerhost.Host) (net.Addr, error) {
	for began := time.Now(); ; time.Sleep(20 * time.Millisecond) { // there is no signal when an address becomes free
		addr, err := host.ServeMetrics(ctx, a.settings.MetricsAddr)
		if err == nil || time.Since(began) > time.Second || !errors.Is(err, syscall.EADDRINUSE) {
			return addr, err
		}
	}
}

// hostConns is the number of connections of a worker host in addition to its
// listener. Ticks, claims and results use each of them only briefly.
const hostConns = 8

// logLines is the writer of every log. The JSON of slog leaves characters as they are that move the
// cursor or turn the line round on the terminal of anyone who reads the log; here they are escaped, as
// in the JSON of the verbs.
type logLines struct{ io.Writer }

// Write writes a whole line.
func (l logLines) Write(p []byte) (int, error) {
	line, ended := strings.CutSuffix(string(p), "\n")
	if _, err := io.WriteString(l.Writer, queue.EscapeJSON(line)+queue.Choose(ended, "\n", "")); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Unwrap returns the underlying writer, which may be a terminal.
func (l logLines) Unwrap() io.Writer { return l.Writer }

// logTo returns a writer for a log, which masks secrets before it escapes characters.
func logTo(w io.Writer) io.Writer {
	if masked, ok := w.(secrecy.Writer); ok {
		w = masked.W
	}
	return secrecy.Writer{W: logLines{w}}
}

// hostLog returns the log of a host without a console: text on a terminal, else
// JSON.
func hostLog(w io.Writer) *slog.Logger {
	w = logTo(w)
	if terminal(w) {
		return slog.New(slog.NewTextHandler(w, nil))
	}
	return slog.New(slog.NewJSONHandler(w, nil))
}

// sayMissing logs to w that n lines of a lineQueue are missing.
func sayMissing(w io.Writer, n int) {
	hostLog(w).Warn("lines of this log are missing: nobody read it, or they could not be written", "lines", n)
}
