package pgclient

// This file is what goes to the server behind a commit of jobs, without waiting for
// its answer: the claim of a worker host of this process, which needs no waking, or
// else the bells of the jobs' domains.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Taker is a worker host in the process of those who enqueue. It may claim right
// behind the commit of their jobs, on their connection.
type Taker interface {
	// Offer is asked before jobs are sent. A claim goes behind their commit, and
	// Claimed is told once what it brought, and whether it left some of them. Without
	// one, takes says that such jobs are looked for, when Look is called.
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

// commit sends a statement that enqueues jobs and gives its answer as soon as its
// commit is known.
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
		// What is claimed is to be worked, even if nobody waits for the enqueueing. The
		// server ends each of the two statements earlier.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*workTimeout+jobTimeout)
		defer cancel()
		r.claimBehind(ctx, conn.Conn(), enqueue, jobs, taker, claim, func(a putAnswer, err error) { done <- told{a, err} })
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
	p := inOneGo(ctx, conn, statements)
	defer func() { _ = p.Close() }() // reads the rest
	a, err := readAnswer(p)
	if err != nil || a.Refused {
		return a, err
	}
	if takes {
		ids := a.ids()
		for i := range min(len(ids), len(jobs)) {
			r.owe(jobs[i].Domain, ids[i])
		}
		taker.Look()
	}
	for _, domain := range later {
		r.Ring(domain)
	}
	return a, nil
}

// claimBehind claims, and rings for the jobs that the claim did not bring.
func (r *Ringer) claimBehind(ctx context.Context, conn *pgx.Conn, enqueue statement, jobs []JobSpec, taker Taker, claim *Claim,
	tell func(putAnswer, error),
) {
	p := inOneGo(ctx, conn, []statement{enqueue, {claimSQL, claim.arguments(conn.TypeMap())}})
	defer func() { _ = p.Close() }()
	a, err := readAnswer(p)
	tell(a, err)
	made := err == nil && !a.Refused
	var got []Job
	err = readNext(p, func(rows *pgconn.ResultReader) (err error) {
		got, err = claimedJobs(pgx.RowsFromResultReader(conn.TypeMap(), rows), claim.Most)
		return err
	})
	r.Claimed(got)
	left := made && !a.within(got)
	taker.Claimed(got, left, translate(err))
	if left {
		for _, domain := range domainsOf(jobs) {
			r.Ring(domain)
		}
	}
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

// inOneGo sends statements without waiting in between, each a transaction of its
// own.
func inOneGo(ctx context.Context, conn *pgx.Conn, statements []statement) *pgconn.Pipeline {
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
		p.SendPipelineSync()
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

// readNext gives the rows of the next statement to f, if it has any, and reads on
// to the end of its transaction.
func readNext(p *pgconn.Pipeline, f func(*pgconn.ResultReader) error) error {
	results, err := p.GetResults()
	if rows, ok := results.(*pgconn.ResultReader); ok {
		err = f(rows)
		if _, closed := rows.Close(); closed != nil {
			err = closed
		}
	} else if err == nil {
		return fmt.Errorf("no rows but %T", results)
	}
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
