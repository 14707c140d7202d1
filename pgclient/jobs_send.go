package pgclient

// This file sends what enqueues jobs: with it, in the same transaction, the claim of
// a worker host of this process, or else, behind the commit, the bells of the jobs'
// domains.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/qtop/qtop/pgclient/pgerror"
	"github.com/qtop/qtop/pgclient/pgpool"
)

// Taker is a worker host in the process of those who enqueue. It may claim in the
// transaction of their jobs.
type Taker interface {
	// Offer is asked before jobs are sent. A claim goes with them, and Claimed is told
	// once what it brought, after the commit, and whether it left some of them: it
	// brings nothing where it fails or gives way. Without one, takes says that such jobs
	// are looked for, when Look is called.
	Offer(jobs []JobSpec) (claim *Claim, takes bool)
	Claimed(jobs []Job, left bool, err error)
	Look()
}

// nobody takes nothing.
type nobody struct{}

func (nobody) Offer([]JobSpec) (*Claim, bool)   { return nil, false }
func (nobody) Claimed(_ []Job, _ bool, _ error) {}
func (nobody) Look()                            {}

// Attach offers jobs to t first.
func (r *Ringer) Attach(t Taker) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.taker = t
}

// Detach ends that, unless another was attached since.
func (r *Ringer) Detach(t Taker) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.taker == t {
		r.taker = nobody{}
	}
}

func (r *Ringer) attached() Taker {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.taker
}

// commit sends a statement that enqueues jobs and gives its answer once it has
// committed.
func (r *Ringer) commit(ctx context.Context, enqueue statement, jobs []JobSpec) (putAnswer, error) {
	conn, err := r.pool.Acquire(ctx)
	if err != nil {
		return putAnswer{}, err
	}
	taker := r.attached()
	claim, takes := taker.Offer(jobs)
	if claim == nil {
		defer conn.Release()
		return r.ringBehind(ctx, conn.Conn(), enqueue, jobs, taker, takes)
	}
	type told struct {
		putAnswer
		err error
	}
	done := make(chan told, 1)
	go func() {
		defer conn.Release()
		a, err := r.claimWith(ctx, conn.Conn(), enqueue, jobs, taker, claim)
		done <- told{a, err}
	}()
	select {
	case t := <-done:
		return t.putAnswer, t.err
	case <-ctx.Done():
		return putAnswer{}, ctx.Err()
	}
}

// ringBehind rings for the jobs that were made, or has the taker look first.
func (r *Ringer) ringBehind(ctx context.Context, conn *pgx.Conn, enqueue statement, jobs []JobSpec, taker Taker, takes bool) (putAnswer, error) {
	if takes {
		defer taker.Look() // also after an error: a claim that gave way was to see others
	}
	statements := []statement{enqueue}
	var later []string // domains that rang a moment ago
	if !takes {
		for _, domain := range domainsOf(jobs) {
			if r.take(domain) {
				statements = append(statements, statement{ringSQL, [][]byte{[]byte(domain)}})
			} else {
				later = append(later, domain)
			}
		}
	}
	p := inOneGo(ctx, conn, statements, true)
	defer func() { _ = p.Close() }() // reads the rest
	a, err := readAnswer(p)
	if end := readOn(p); err == nil {
		err = end
	}
	if err != nil || a.Refused {
		return a, err
	}
	if takes {
		ids := a.ids()
		for i := range min(len(ids), len(jobs)) {
			r.owe(jobs[i].Domain, ids[i])
		}
	}
	for _, domain := range later {
		r.Ring(domain)
	}
	return a, nil
}

// claimWith claims in the transaction that enqueues, and rings for the jobs that the
// claim did not bring. A transaction that fails is made again without the claim, which
// gives way to the jobs where it has to wait for a lock, such as that of a rule
// somebody changes, for longer than claimPatience.
func (r *Ringer) claimWith(ctx context.Context, conn *pgx.Conn, enqueue statement, jobs []JobSpec, taker Taker, claim *Claim) (putAnswer, error) {
	patient := statement{enqueue.sql + patiently, enqueue.args}
	// What is claimed is to be worked, even if nobody waits for the enqueueing. The
	// server ends each statement earlier.
	both, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*pgpool.WorkTimeout+jobTimeout)
	defer cancel()
	p := inOneGo(both, conn, []statement{patient, {claimSQL, claim.arguments(conn.TypeMap())}}, false)
	var got []Job
	var broken error // the jobs are leased, but cannot be read
	var refused *pgconn.PgError
	a, err := readAnswer(p)
	made := err == nil
	if made {
		broken = readNext(p, func(rows *pgconn.ResultReader) (err error) {
			got, err = claimedJobs(pgx.RowsFromResultReader(conn.TypeMap(), rows), claim.Most)
			return err
		})
		if err = readOn(p); errors.As(broken, &refused) {
			err = broken
		}
	}
	_ = p.Close()
	if errors.As(err, &refused) && !conn.IsClosed() { // rolled back
		taker.Claimed(nil, made, nil)
		return r.ringBehind(ctx, conn, enqueue, jobs, taker, true)
	} else if err != nil {
		taker.Claimed(nil, false, pgerror.Translate(err))
		taker.Look()
		return a, err
	}
	r.Claimed(got)
	left := !a.Refused && !a.within(got)
	taker.Claimed(got, left, pgerror.Translate(broken))
	if left {
		for _, domain := range domainsOf(jobs) {
			r.Ring(domain)
		}
	}
	return a, nil
}

// domainsOf names each once.
func domainsOf(jobs []JobSpec) (domains []string) {
	for i := range jobs {
		if !slices.Contains(domains, jobs[i].Domain) {
			domains = append(domains, jobs[i].Domain)
		}
	}
	return domains
}

// ids are those of the jobs, in the order given.
func (a *putAnswer) ids() []string {
	if a.ID != "" {
		return []string{a.ID}
	}
	return a.IDs
}

// within tells whether each job of the answer is among those.
func (a *putAnswer) within(jobs []Job) bool {
	claimed := make(map[string]bool, len(jobs))
	for i := range jobs {
		claimed[jobs[i].ID.String()] = true
	}
	return !slices.ContainsFunc(a.ids(), func(id string) bool { return !claimed[id] })
}

// statement is one with its arguments as text.
type statement struct {
	sql  string
	args [][]byte
}

// inOneGo sends statements without waiting in between, apart, as a transaction of its
// own each, or together in one.
func inOneGo(ctx context.Context, conn *pgx.Conn, statements []statement, apart bool) *pgconn.Pipeline {
	prepared := make([]*pgconn.StatementDescription, len(statements))
	if conn.Config().DefaultQueryExecMode == pgx.QueryExecModeCacheStatement {
		for i, s := range statements {
			prepared[i], _ = conn.Prepare(ctx, s.sql, s.sql) // once per connection
		}
	}
	p := conn.PgConn().StartPipeline(ctx)
	for i, s := range statements {
		if d := prepared[i]; d != nil {
			formats := make([]int16, len(d.Fields))
			for i, f := range d.Fields {
				formats[i] = conn.TypeMap().FormatCodeForOID(f.DataTypeOID)
			}
			p.SendQueryStatement(d, s.args, nil, formats)
		} else {
			p.SendQueryParams(s.sql, s.args, nil, nil, nil)
		}
		if apart || i+1 == len(statements) {
			p.SendPipelineSync()
		}
	}
	_ = p.Flush() // an error shows when the answer is read
	return p
}

// readAnswer reads the statement that enqueues.
func readAnswer(p *pgconn.Pipeline) (a putAnswer, err error) {
	err = readNext(p, func(rows *pgconn.ResultReader) error {
		if !rows.NextRow() {
			return nil // its error follows
		}
		return json.Unmarshal(rows.Values()[0], &a)
	})
	return a, err
}

// readNext gives the rows of the next statement to f, if it has any.
func readNext(p *pgconn.Pipeline, f func(*pgconn.ResultReader) error) error {
	results, err := p.GetResults()
	rows, ok := results.(*pgconn.ResultReader)
	if !ok {
		if err == nil {
			err = fmt.Errorf("no rows but %T", results)
		}
		return err
	}
	err = f(rows)
	if _, closed := rows.Close(); closed != nil {
		err = closed
	}
	return err
}

// readOn reads to the end of the transaction: it has committed when there is no
// error.
func readOn(p *pgconn.Pipeline) (err error) {
	for {
		results, end := p.GetResults()
		if err == nil {
			err = end
		}
		var pg *pgconn.PgError
		if _, ok := results.(*pgconn.PipelineSync); ok || !errors.As(end, &pg) {
			return err
		}
	}
}
