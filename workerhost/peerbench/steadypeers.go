package main

// Worker hosts of peers as separate processes: this program runs River and PgQue.

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

const peerHostEnv = "PEERBENCH_HOST"

// peerHostSpec is the configuration of a host process of a peer, which gets it as JSON in an
// environment variable.
type peerHostSpec struct{ Peer, DSN, URL string }

// peerHostMain runs the host until the process is killed.
func peerHostMain() {
	text := os.Getenv(peerHostEnv)
	if text == "" {
		return
	}
	var spec peerHostSpec
	err := json.Unmarshal([]byte(text), &spec)
	if err == nil {
		err = spec.run(context.Background())
	}
	fmt.Fprintln(os.Stderr, spec.Peer, "host:", err)
	os.Exit(1) //nolint:forbidigo // a separate process; nothing to drain
}

func (spec peerHostSpec) run(ctx context.Context) error {
	pool, err := openPool(ctx, spec.DSN, 20)
	if err != nil {
		return err
	}
	post := poster(spec.URL)
	if spec.Peer == pgqueName {
		return consumePgQue(ctx, pool, post)
	}
	client, err := riverClient(pool, post, peerConcurrency)
	if err == nil {
		err = client.Start(ctx)
	}
	if err == nil {
		<-ctx.Done()
	}
	return err
}

// peerConcurrency is the number of concurrent jobs, the same as the default of `qtop worker`.
const peerConcurrency = 64

func openPool(ctx context.Context, dsn string, conns int32) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, err
	}
	cfg.MaxConns = conns
	return pgxpool.NewWithConfig(ctx, cfg)
}

// poster returns a handler that makes one request to the receiver.
func poster(url string) func(ctx context.Context, n int) error {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: peerConcurrency}}
	return func(ctx context.Context, n int) error {
		body := bytes.NewReader(fmt.Appendf(nil, `{"n":%d}`, n))
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, body)
		if err != nil {
			return err
		}
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			return err
		}
		if resp.StatusCode >= 300 {
			return fmt.Errorf("the receiver answered %s", resp.Status)
		}
		return nil
	}
}

// consumePgQue ticks, maintains and consumes as PgQue's adapter in the public comparison does: it looks
// for the next batch when a tick is notified, and at least every 100 ms.
func consumePgQue(ctx context.Context, pool *pgxpool.Pool, post func(context.Context, int) error) error {
	ticks := make(chan struct{}, 1)
	go listenPgQue(ctx, pool.Config().ConnConfig, ticks)
	go every(ctx, 50*time.Millisecond, pool, "SELECT pgque.ticker('bench')")
	go every(ctx, 10*time.Second, pool, "SELECT pgque.maint()")
	go every(ctx, 10*time.Second, pool, "SELECT pgque.maint_rotate_tables_step2()")
	for ctx.Err() == nil {
		found, err := pgqueBatch(ctx, pool, post)
		if err != nil {
			fmt.Fprintln(os.Stderr, "PgQue host:", err)
		}
		if found && err == nil {
			continue
		}
		select {
		case <-ctx.Done():
		case <-ticks:
		case <-time.After(100 * time.Millisecond):
		}
	}
	return ctx.Err()
}

// listenPgQue sends to ticks after each notification, in a separate session, which it opens again
// when it was lost.
func listenPgQue(ctx context.Context, cfg *pgx.ConnConfig, ticks chan<- struct{}) {
	listen := func() error {
		conn, err := pgx.ConnectConfig(ctx, cfg)
		if err != nil {
			return err
		}
		defer conn.Close(context.WithoutCancel(ctx))
		if _, err := conn.Exec(ctx, "LISTEN pgque_bench"); err != nil {
			return err
		}
		for {
			if _, err := conn.WaitForNotification(ctx); err != nil {
				return err
			}
			select {
			case ticks <- struct{}{}:
			default:
			}
		}
	}
	for ctx.Err() == nil {
		fmt.Fprintln(os.Stderr, "PgQue host, listening:", listen())
		_ = pause(ctx, 200*time.Millisecond)
	}
}

func every(ctx context.Context, interval time.Duration, pool *pgxpool.Pool, sql string) {
	for pause(ctx, interval) == nil {
		if _, err := pool.Exec(ctx, sql); err != nil {
			fmt.Fprintln(os.Stderr, "PgQue host:", err)
		}
	}
}

// pgqueBatch works on the next batch, and reports whether there was one.
func pgqueBatch(ctx context.Context, pool *pgxpool.Pool, post func(context.Context, int) error) (bool, error) {
	var batch *int64
	if err := pool.QueryRow(ctx, "SELECT pgque.next_batch('bench', 'bench')").Scan(&batch); err != nil || batch == nil {
		return false, err
	}
	rows, _ := pool.Query(ctx, "SELECT ev_data FROM pgque.get_batch_events($1)", *batch)
	events, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return false, err
	}
	var wg sync.WaitGroup
	free := make(chan struct{}, peerConcurrency)
	for _, data := range events {
		n, err := strconv.Atoi(data)
		if err != nil {
			return false, err
		}
		free <- struct{}{}
		wg.Go(func() {
			if err := post(ctx, n); err != nil {
				fmt.Fprintln(os.Stderr, "PgQue host:", err)
			}
			<-free
		})
	}
	wg.Wait()
	_, err = pool.Exec(ctx, "SELECT pgque.finish_batch($1)", *batch)
	return true, err
}
