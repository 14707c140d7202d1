package main

// The load: a producer in a separate process, and the receiver, which records the inserted and
// the started jobs.

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/qtop/qtop/pgclient"
	"github.com/qtop/qtop/pgclient/enqueue"
)

// producerSpec is the configuration of a producer process, which gets it as JSON in an
// environment variable.
type producerSpec struct {
	DSN    string `json:"dsn"`
	River  bool   `json:"river"`
	Client bool   `json:"client"` // insert with JobEnqueue of qtop's Go client
	SQL    string `json:"sql"`    // SQL that inserts one job with the number $1
	Wake   string `json:"wake"`   // domain for which qtop's wake signal is sent after commits; the triggers then send none
}

const producerEnv = "PEERBENCH_PRODUCER"

// producerConns is the number of inserts in flight, as in a producer with a connection pool.
const producerConns = 16

// producerMain runs a producer: the input line "rate N" sets the rate, and "insert N" inserts one
// job with the number N. For each insert it writes the line "n sent ok", with sent in nanoseconds
// since 1970. It ends when its input ends.
func producerMain() {
	text := os.Getenv(producerEnv)
	if text == "" {
		return
	}
	var spec producerSpec
	err := json.Unmarshal([]byte(text), &spec)
	if err == nil {
		err = produceSteadily(context.Background(), spec, os.Stdin, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "producer:", err)
		os.Exit(1) //nolint:forbidigo // a separate process; nothing to drain
	}
	os.Exit(0) //nolint:forbidigo // its input has ended
}

func produceSteadily(ctx context.Context, spec producerSpec, in io.Reader, out io.Writer) error {
	cfg, err := pgxpool.ParseConfig(spec.DSN)
	if err != nil {
		return err
	}
	cfg.MaxConns = producerConns + 1 // one more for wake signals
	if spec.Wake != "" {
		cfg.ConnConfig.RuntimeParams["qtop.doorbell"] = "on"
	}
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return err
	}
	defer pool.Close()
	insert, err := spec.insert(ctx, pool)
	if err != nil {
		return err
	}
	var rate atomic.Int64
	ordered := make(chan int)
	over := make(chan struct{})
	go func() {
		defer close(over)
		for lines := bufio.NewScanner(in); lines.Scan(); {
			var n int
			if _, err := fmt.Sscanf(lines.Text(), "insert %d", &n); err == nil {
				ordered <- n
			} else if _, err := fmt.Sscanf(lines.Text(), "rate %d", &n); err == nil {
				rate.Store(int64(n))
			} else {
				return
			}
		}
	}()
	var mu sync.Mutex // guards the output and complained
	var complained time.Time
	lines := bufio.NewWriter(out)
	var wg sync.WaitGroup
	free := make(chan struct{}, producerConns)
	one := func(number int) {
		free <- struct{}{}
		wg.Go(func() {
			sent := time.Now().UnixNano()
			call, cancel := context.WithTimeout(ctx, 30*time.Second)
			err := insert(call, number)
			cancel()
			<-free
			mu.Lock()
			defer mu.Unlock()
			if err != nil && time.Since(complained) > time.Second {
				complained = time.Now()
				fmt.Fprintln(os.Stderr, "producer:", err)
			}
			fmt.Fprintf(lines, "%d %d %t\n", number, sent, err == nil)
			_ = lines.Flush()
		})
	}
	pace := pacer{at: time.Now()}
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for n := 0; ; {
		select {
		case <-over:
			wg.Wait()
			return lines.Flush()
		case number := <-ordered:
			one(number)
			continue
		case <-tick.C:
		}
		for range pace.due(time.Now(), rate.Load()) {
			one(n)
			n++
		}
	}
}

func (spec producerSpec) insert(ctx context.Context, pool *pgxpool.Pool) (func(context.Context, int) error, error) {
	if spec.Client {
		client, err := pgclient.Open(ctx, pgclient.Options{DSN: spec.DSN, Program: "bench producer", WorkConns: producerConns})
		if err != nil {
			return nil, err
		}
		by := enqueue.New(client)
		return func(ctx context.Context, n int) error {
			_, _, err := by.Enqueue(ctx, noopJob(n))
			return err
		}, nil
	}
	if spec.River {
		client, err := riverClient(pool, nil, 0)
		return func(ctx context.Context, n int) error {
			_, err := client.Insert(ctx, riverNoop{n}, nil)
			return err
		}, err
	}
	notifier := enqueue.NewNotifier(pool)
	return func(ctx context.Context, n int) error {
		_, err := pool.Exec(ctx, spec.SQL, n)
		if err == nil && spec.Wake != "" {
			notifier.Notify(spec.Wake)
		}
		return err
	}, nil
}

// pacer computes from the elapsed time how many jobs are due.
type pacer struct {
	at     time.Time
	credit float64
}

// due returns how many jobs are due. After a pause of more than a second, only the jobs of one
// second are due.
func (p *pacer) due(now time.Time, rate int64) int {
	p.credit = min(p.credit+float64(rate)*now.Sub(p.at).Seconds(), max(1, float64(rate)))
	p.at = now
	n := int(p.credit)
	p.credit -= float64(n)
	return n
}

// producer is a running producer process.
type producer struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	mu  sync.Mutex
	end chan struct{} // closed when the output has ended
}

// startProducer starts the process. It calls inserted for each insert that the process reports.
func startProducer(cmd *exec.Cmd, inserted func(n int, sent int64, ok bool)) (*producer, error) {
	p := &producer{cmd: cmd, end: make(chan struct{})}
	cmd.SysProcAttr = endWithParent()
	var err error
	if p.in, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(p.end)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			var n int
			var sent int64
			var ok bool
			if _, err := fmt.Sscanf(lines.Text(), "%d %d %t", &n, &sent, &ok); err == nil {
				inserted(n, sent, ok)
			}
		}
	}()
	return p, nil
}

func (p *producer) setRate(n int) { p.say("rate %d\n", n) }

func (p *producer) say(format string, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, _ = fmt.Fprintf(p.in, format, n)
}

// stop closes the input of the process and waits until its inserts in flight have ended.
func (p *producer) stop() error {
	_ = p.in.Close()
	select {
	case <-p.end:
	case <-time.After(time.Minute):
		_ = p.cmd.Process.Kill()
		<-p.end
	}
	return p.cmd.Wait()
}

// ServeHTTP receives the request of a handler. The number of the job is in the payload; for a
// webhook the body is the payload, and for a routed event the number is in the reference to its
// subject.
func (l *steadyLedger) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	at := time.Now().UnixNano()
	n, err := jobNumber(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	l.start(n, at)
	w.WriteHeader(http.StatusNoContent)
}

func jobNumber(body io.Reader) (int, error) {
	var b struct {
		N       *int
		Payload struct{ N *int }
		Target  string `json:"target_ref"`
	}
	if err := json.NewDecoder(body).Decode(&b); err != nil {
		return 0, err
	}
	switch _, subject, _ := strings.Cut(b.Target, "/"); {
	case b.N != nil:
		return *b.N, nil
	case b.Payload.N != nil:
		return *b.Payload.N, nil
	case subject != "":
		return strconv.Atoi(subject)
	}
	return 0, errors.New("the payload of a request has no number n")
}
