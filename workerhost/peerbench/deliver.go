package main

// Part 9: webhooks through all steps (event, saga, job, POST), and for comparison a client that
// only posts. The receiver is a separate process, the same for both; it responds 204 and counts
// the requests.

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/qtop/qtop/pgclient"
	"github.com/qtop/qtop/workerhost"
	"github.com/qtop/qtop/workerhost/sender"
)

const (
	bareClient = "bare Go client"
	deliveries = "deliveries"
	inFlight   = 64
	hookEvent  = "bench.delivered"
	// hookPayload is the payload of event number $1; it is about as long as an order.
	hookPayload = `jsonb_build_object('n', $1::int, 'order', 'A-100' || $1::int, 'currency', 'EUR', 'amount', 12.50, 'items',
		jsonb_build_array(jsonb_build_object('sku', 'x-1', 'count', 2), jsonb_build_object('sku', 'x-2', 'count', 1)))`
)

func (b *bench) deliverRate(ctx context.Context) part {
	n := b.scale(50_000, 2000)
	r, err := startReceiver(ctx)
	if err != nil {
		b.wrong = append(b.wrong, "deliver: "+err.Error())
		return part{title: "deliver", figs: &figures{by: map[figure]*measure{}, outs: []string{err.Error()}}}
	}
	defer r.stop()
	counted := func(run func(ctx context.Context) (float64, error)) func(context.Context, put) error {
		return func(ctx context.Context, put put) error {
			before, err := r.count(ctx)
			if err != nil {
				return err
			}
			rate, err := run(ctx)
			if err != nil {
				return err
			}
			after, err := r.count(ctx)
			if err == nil && after-before != n {
				err = fmt.Errorf("the receiver had %d requests instead of %d", after-before, n)
			}
			if err == nil {
				put(deliveries, perSecond, rate)
			}
			return err
		}
	}
	f := b.contest(ctx,
		contender{qtopName, counted(func(ctx context.Context) (float64, error) { return b.delivered(ctx, r.url, n) })},
		contender{bareClient, counted(func(ctx context.Context) (float64, error) { return b.posted(ctx, r.url, n) })})
	return part{title: "deliver", figs: f, goals: []goal{
		{"webhook deliveries through the whole path ÷ bare posting", f.get(qtopName, deliveries), f.get(bareClient, deliveries),
			bareClient, atLeast(0.15), atLeast(0.35)},
	}, notes: []string{
		fmt.Sprintf("%s events of one subscription are inserted first, unsigned; the time runs from the start of one host, which runs all loops, to the last saga "+
			"settled as Completed; both have %d requests in flight on kept connections to one receiver, which is a separate process; a drain, no steady load", number(float64(n)), inFlight),
	}}
}

// delivered measures one host, from its start until the last saga is settled.
func (b *bench) delivered(ctx context.Context, url string, n int) (float64, error) {
	d, err := b.fresh(ctx, qtopTemplate())
	if err != nil {
		return 0, err
	}
	defer d.drop()
	// The loops of a host wake each other in their process. Wake signals are for other hosts and
	// consoles, and off by default.
	err = d.exec(ctx, "SELECT public.fn_dot_config_set('queue.notify.bridge_enabled', 'false', 'bench', 'measured as installed', NULL::timestamptz, NULL::timestamptz)")
	if err == nil {
		err = d.exec(ctx, "SELECT public.fn_dot_config_set('webhook.slow_start.enabled', 'false', 'bench', 'a backlog is what is measured', NULL::timestamptz, NULL::timestamptz)")
	}
	if err == nil {
		err = d.exec(ctx, "INSERT INTO public.subscriptions (event_type, callback_url, verified) VALUES ($1, $2, true)", hookEvent, url)
	}
	if err == nil {
		err = d.exec(ctx, "INSERT INTO public.events (event_type, payload) SELECT $2, "+
			strings.ReplaceAll(hookPayload, "$1", "g")+" FROM generate_series(1, $1::int) g", n, hookEvent)
	}
	// Only the filled tables: after a vacuum of an empty table the planner assumes that the table
	// stays empty.
	if err == nil {
		err = d.exec(ctx, "VACUUM (ANALYZE) public.events, public.subscriptions")
	}
	if err == nil {
		err = d.exec(ctx, "CHECKPOINT")
	}
	if err != nil {
		return 0, err
	}
	client, err := pgclient.Open(ctx, pgclient.Options{DSN: d.dsn(hostLogin), Program: "bench host", WorkConns: hostConns})
	if err != nil {
		return 0, err
	}
	defer client.Close()
	s := sender.New(sender.Config{Version: "bench", Concurrency: inFlight, Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, PlainHTTP: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
	defer s.Close()
	host, err := workerhost.New(client, workerhost.Options{
		ID: "bench", Version: "bench", Concurrency: inFlight, PerEndpoint: inFlight, Grace: 10 * time.Second, Sender: s,
	})
	if err != nil {
		return 0, err
	}
	running, cancel := context.WithCancel(ctx)
	defer cancel()
	began := time.Now()
	ended := make(chan error, 1)
	go func() { ended <- host.Run(running) }()
	for err == nil && sent(host) < int64(n) {
		err = pause(ctx, 2*time.Millisecond)
	}
	completed := "FROM public.webhook_delivery_sagas WHERE status = 'Completed'"
	if err == nil {
		err = d.until(ctx, fmt.Sprintf("SELECT count(*) = %d %s", n, completed))
	}
	took := time.Since(began)
	cancel()
	if stopped := <-ended; err == nil {
		err = stopped
	}
	if err == nil {
		err = d.expect(ctx, n, "SELECT count(*)::int FROM public.webhook_delivery_jobs WHERE settled_at IS NOT NULL AND response_status = 204")
	}
	return float64(n) / took.Seconds(), err
}

// sent returns how many results the host h has recorded.
func sent(h *workerhost.Host) int64 {
	for _, l := range h.Status().Loops {
		if l.Name == "webhook_worker" {
			return l.Done
		}
	}
	return 0
}

// posted measures the client that only posts: the same bodies, and the same number of requests in
// flight.
func (b *bench) posted(ctx context.Context, url string, n int) (float64, error) {
	var body []byte
	if err := b.admin.QueryRow(ctx, "SELECT "+hookPayload, n).Scan(&body); err != nil {
		return 0, err
	}
	transport := &http.Transport{MaxIdleConns: inFlight, MaxIdleConnsPerHost: inFlight}
	defer transport.CloseIdleConnections()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var taken atomic.Int64
	var wg sync.WaitGroup
	began := time.Now()
	for range inFlight {
		wg.Go(func() {
			for ctx.Err() == nil && taken.Add(1) <= int64(n) {
				req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
				if err != nil {
					cancel(err)
					return
				}
				req.Header.Set("Content-Type", "application/json")
				resp, err := transport.RoundTrip(req)
				if err != nil {
					cancel(err)
					return
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
			}
		})
	}
	wg.Wait()
	took := time.Since(began)
	return float64(n) / took.Seconds(), context.Cause(ctx)
}

// receiverEnv is the environment variable that makes this program the receiver.
const receiverEnv = "QTOP_BENCH_RECEIVER"

// receiverMain runs the receiver's process: it prints its address, and it ends when its parent
// ends.
func receiverMain() {
	if os.Getenv(receiverEnv) == "" {
		return
	}
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Fprintln(os.Stderr, "receiver:", err)
		os.Exit(1) //nolint:forbidigo // a separate process; nothing to drain
	}
	fmt.Println("http://" + l.Addr().String()) //nolint:forbidigo // the parent process reads it
	var posts atomic.Int64
	mux := http.NewServeMux()
	mux.HandleFunc("POST /", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		posts.Add(1)
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("GET /count", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, posts.Load()) })
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0) //nolint:forbidigo // the parent process has ended
	}()
	server := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	fmt.Fprintln(os.Stderr, "receiver:", server.Serve(l))
	os.Exit(1) //nolint:forbidigo // a separate process; nothing to drain
}

// receiver is the process behind the URL.
type receiver struct {
	url string
	cmd *exec.Cmd
	in  io.Closer
}

func startReceiver(ctx context.Context) (*receiver, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, exe)
	cmd.Env = append(os.Environ(), receiverEnv+"=1")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	r := &receiver{cmd: cmd, in: in}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		r.stop()
		return nil, errors.New("the receiver did not start")
	}
	r.url = strings.TrimSpace(line)
	return r, nil
}

func (r *receiver) count(ctx context.Context) (int, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.url+"/count", nil)
	if err != nil {
		return 0, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(string(text))
}

func (r *receiver) stop() {
	_ = r.in.Close()
	_ = r.cmd.Wait()
}
