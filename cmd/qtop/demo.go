package main

// `qtop demo`: an embedded PostgreSQL with the traffic and the incident of the
// demo, a worker host in this process, and the console.

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/spf13/cobra"

	"github.com/qtop/qtop/config"
	"github.com/qtop/qtop/pgclient"
	"github.com/qtop/qtop/pgclient/actions"
	"github.com/qtop/qtop/pgclient/embedded"
	"github.com/qtop/qtop/pgclient/pgerror"
	"github.com/qtop/qtop/pgclient/pgsession"
	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/pgclient/schema"
	"github.com/qtop/qtop/workerhost"
	"github.com/qtop/qtop/workerhost/demo"
)

type demoOptions struct {
	headless, keep bool
	as             string
}

func demoCmd(a *app) *cobra.Command {
	var o demoOptions
	cmd := &cobra.Command{
		Use: "demo", Example: "qtop demo --as viewer", Annotations: map[string]string{settingsKey: "caller watch screen"}, Short: "Try qtop: a private PostgreSQL with live traffic and an incident", Args: cobra.NoArgs,
		Long: "Starts a private PostgreSQL on its own socket, installs the schema, sends real webhooks to receivers on\n" +
			"loopback, and opens the console. Executor iu_outbound_default has been silent for 95 hours: find it, and start\n" +
			"its loop in the worker host (gw). For the verbs in a second shell, key ? shows the QTOP_DSN of the console.\n" +
			"Everything is wiped at the next start unless --keep.",
		RunE: func(cmd *cobra.Command, _ []string) error { return a.demo(cmd.Context(), o) },
	}
	cmd.Flags().BoolVar(&o.headless, "headless", false, "no console: print the DSN once traffic flows, stay until a signal")
	cmd.Flags().BoolVar(&o.keep, "keep", false, "keep the state of the last demo")
	cmd.Flags().StringVar(&o.as, "as", "operator", "who looks: operator, viewer or admin")
	_ = cmd.RegisterFlagCompletionFunc("as", cobra.FixedCompletions([]string{"operator", "viewer", "admin"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func (a *app) demo(ctx context.Context, o demoOptions) error {
	user, ok := map[string]string{"operator": demo.Operator, "viewer": demo.Viewer, "admin": demo.Admin}[o.as]
	if !ok {
		return usage(fmt.Sprintf("--as cannot be %q", o.as), "command line", "use operator, viewer or admin")
	}
	if !o.headless {
		if err := a.canShow(); err != nil {
			return err
		}
	}
	a.leaveUsersDatabase()
	dir, err := embedded.DefaultDir()
	if err != nil {
		return err
	}
	server, err := embedded.Start(ctx, embedded.Options{Dir: dir, Wipe: !o.keep, Notice: a.notice})
	if err != nil {
		return err
	}
	defer a.stopServer(server)
	dsn := func(user string) string { return server.DSN(user, demo.Database) }
	if server.Joined() {
		a.notice("joined the demo that is running already")
		return a.demoJoined(ctx, o, dsn(user), dsn(demo.Viewer), server)
	}
	log, closeLog := a.logFile()
	defer closeLog()
	world, err := a.demoWorld(ctx, server, dsn, log)
	if world != nil {
		defer world.Stop()
	}
	if err != nil {
		return err
	}
	hostClient, host, err := a.demoHost(ctx, dsn(demo.HostUser), log)
	if err != nil {
		return err
	}
	defer hostClient.Close()
	if o.headless {
		ready := func(ctx context.Context) error { return demo.Flowing(ctx, dsn(demo.Viewer)) }
		return whileServing(ctx, server, host.Run, ready, func() { a.announce(dsn(user)) })
	}
	client, err := pgclient.Open(ctx, pgclient.Options{DSN: dsn(user), Actor: a.settings.Actor, Actions: actions.Registry(), ReadOnly: a.settings.ReadOnly})
	if err != nil {
		return err
	}
	defer client.Close()
	return a.show(ctx, client, host, log, demoConsole{"demo as " + user, shortDSN(dsn(user))})
}

// libpqVariable matches a variable that libpq reads, and pgx too.
var libpqVariable = regexp.MustCompile(`^PG[A-Z]+$`)

// leaveUsersDatabase takes back what a profile and the variables of libpq (PGOPTIONS, PGSERVICE) say
// about a database, which is not that of the demo: of a profile its name in the header, and that
// nothing may be changed there, or only after a name was typed.
func (a *app) leaveUsersDatabase() {
	s := &a.settings
	s.ReadOnly = s.ReadOnly && !s.FromProfile("read_only")
	s.Production = s.Production && !s.FromProfile("production")
	s.Profile = ""
	for _, variable := range os.Environ() {
		if name, _, _ := strings.Cut(variable, "="); libpqVariable.MatchString(name) {
			_ = os.Unsetenv(name) // fails only for a name that no variable has
		}
	}
}

// notice prints a line about the server of the demo, which may quote its log.
func (a *app) notice(line string) { fmt.Fprintln(a.errs, "qtop: "+queue.Clean(line).String()) }

func (a *app) stopServer(s interface{ Stop(context.Context) error }) {
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
	defer cancel()
	if err := s.Stop(ctx); err != nil {
		a.printError(queue.Error{What: queue.Clean(err.Error())})
	}
}

// demoWorld installs the schema and starts the traffic.
func (a *app) demoWorld(ctx context.Context, server *embedded.Server, dsn func(string) string, log *slog.Logger) (*demo.Demo, error) {
	super, err := pgsession.Connect(ctx, server.DSN("postgres", "postgres"))
	if err != nil {
		return nil, pgerror.Connect(err)
	}
	defer super.Close(context.WithoutCancel(ctx))
	var have bool
	if err := super.QueryRow(ctx, "SELECT EXISTS (SELECT 1 FROM pg_database WHERE datname = $1)", demo.Database).Scan(&have); err != nil {
		return nil, pgerror.Connect(err)
	}
	if !have {
		if _, err := super.Exec(ctx, "CREATE DATABASE "+demo.Database); err != nil {
			return nil, pgerror.Connect(err)
		}
	}
	if err := schema.Current().Up(ctx, dsn("postgres"), schema.UpOptions{AdoptRoles: true}); err != nil {
		return nil, pgerror.Connect(err)
	}
	world := demo.New(dsn, log)
	if err := world.Prepare(ctx, dsn("postgres")); err != nil {
		return world, err
	}
	return world, world.Start(ctx)
}

// demoHost returns the worker host of the demo and its client. The host may
// send to loopback addresses, signs with a secret that is made for this run,
// and runs every loop but the one whose silence is the incident
// (demo.SilentLoop).
func (a *app) demoHost(ctx context.Context, dsn string, log *slog.Logger) (*pgclient.Client, *workerhost.Host, error) {
	var secret [24]byte
	if _, err := rand.Read(secret[:]); err != nil {
		return nil, nil, err
	}
	if err := os.Setenv(demo.SecretEnv, "whsec_"+base64.StdEncoding.EncodeToString(secret[:])); err != nil {
		return nil, nil, err
	}
	usual, err := config.Load(config.Sources{Hostname: cmp.Or(config.System(nil).Hostname, "demo")})
	if err != nil {
		return nil, nil, err
	}
	// The settings of the user's own worker host have no effect on the demo.
	s := &a.settings
	s.HostID, s.Concurrency, s.Grace, s.Handlers, s.Delivery = usual.HostID, usual.Concurrency, usual.Grace, usual.Handlers, usual.Delivery
	s.Executor = demo.Executor
	s.Delivery.AllowNetworks = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}
	s.Delivery.AllowPlainHTTP = s.Delivery.AllowNetworks
	s.Delivery.Secrets = []config.Secret{{Ref: demo.SecretRef, Env: demo.SecretEnv}}
	client, err := pgclient.Open(ctx, pgclient.Options{DSN: dsn, Program: "qtop host", WorkConns: hostConns})
	if err != nil {
		return nil, nil, err
	}
	loops := slices.DeleteFunc(workerhost.LoopNames(), func(n string) bool { return n == demo.SilentLoop })
	host, err := a.host(client, loops, log, demo.Handlers(), demo.Lookup)
	if err != nil {
		client.Close()
		return nil, nil, err
	}
	return client, host, nil
}

// demoJoined is for a demo that runs already, or is about to: it opens another console on that
// database or, with --headless, prints its DSN once traffic flows.
func (a *app) demoJoined(ctx context.Context, o demoOptions, dsn, viewer string, server demoServer) error {
	if o.headless {
		ready := func(ctx context.Context) error { return demo.Flowing(ctx, viewer) }
		return whileServing(ctx, server, nil, ready, func() { a.announce(dsn) })
	}
	client, err := pgclient.Open(ctx, pgclient.Options{DSN: dsn, Actor: a.settings.Actor, Actions: actions.Registry(), ReadOnly: a.settings.ReadOnly})
	if err != nil {
		return err
	}
	defer client.Close()
	log, closeLog := a.logFile()
	defer closeLog()
	return a.show(ctx, client, nil, log, demoConsole{"demo, joined", shortDSN(dsn)})
}

// shortDSN returns the connection string of the demo as key=value pairs, which are easier to copy from a
// screen; the string itself if it would need quotes.
func shortDSN(dsn string) string {
	c, err := pgconn.ParseConfig(dsn)
	if err != nil || strings.ContainsAny(c.Host, ` '\\`) {
		return dsn
	}
	return fmt.Sprintf("host=%s port=%d user=%s dbname=%s", c.Host, c.Port, c.User, c.Database)
}

// demoServer is the PostgreSQL of the demo.
type demoServer interface {
	Done() <-chan struct{} // closed when it has ended
	LogFile() string
}

// flowTime is how long the traffic of the demo may take to begin; hostEnd is how long the host may
// take to end without a database.
const (
	flowTime = 60 * time.Second
	hostEnd  = 5 * time.Second
)

// whileServing runs the demo without a console until ctx ends: run is its worker host (nil = another
// process runs it), and ready returns once traffic flows. Then announce is called; after the end it is waited
// for hostEnd at most, because nobody may read what it prints. If PostgreSQL ends meanwhile, whileServing returns an
// error: nothing would start that server again.
func whileServing(ctx context.Context, server demoServer, run, ready func(context.Context) error, announce func()) error {
	ended := make(chan error, 1)
	hostCtx, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	if run != nil {
		go func() { ended <- run(hostCtx) }()
	}
	begun := make(chan error, 1)
	flowing, cancel := context.WithTimeout(ctx, flowTime)
	defer cancel()
	go func() { begun <- ready(flowing) }()
	var announced chan struct{} // closed once announce has returned, which may wait for a reader
	// end stops the host and returns err, else the error of the host.
	end := func(err error) error {
		stop()
		if announced != nil {
			select {
			case <-announced:
			case <-time.After(hostEnd):
			}
		}
		if run == nil {
			return err
		}
		select {
		case hostErr := <-ended:
			return cmp.Or(err, hostErr)
		case <-bounded(server, hostEnd):
			return err
		}
	}
	for {
		select {
		case <-ctx.Done():
			return end(nil)
		case <-server.Done():
			if ctx.Err() != nil {
				return end(nil)
			}
			return end(queue.NewError(queue.KindUnavailable, "the PostgreSQL of the demo has ended", server.LogFile(), "read the log, then start qtop demo again"))
		case err := <-ended:
			return err
		case err := <-begun:
			begun = nil
			switch {
			case err == nil:
				announced = make(chan struct{})
				go func() {
					defer close(announced)
					announce()
				}()
			case ctx.Err() == nil:
				select {
				case <-server.Done(): // that is why no traffic flows
				default:
					return end(err)
				}
			}
		}
	}
}

// bounded returns a channel that gets a value d after the server has ended: a host can then not end
// as it should. While the server runs, the host has its own limits.
func bounded(server demoServer, d time.Duration) <-chan time.Time {
	select {
	case <-server.Done():
		return time.After(d)
	default:
		return nil
	}
}

func (a *app) announce(dsn string) {
	if a.asJSON(map[string]string{"dsn": dsn}) {
		return
	}
	fmt.Fprintf(a.out, "traffic flows; connect with\n  qtop --dsn '%s'\nstop with ctrl+c\n", dsn)
}
