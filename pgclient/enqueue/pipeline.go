package enqueue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// statement is an SQL statement with its arguments as text.
type statement struct {
	sql  string
	args [][]byte
}

// startPipeline sends statements in one round trip, all in one transaction.
func startPipeline(ctx context.Context, conn *pgx.Conn, statements []statement) *pgconn.Pipeline {
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
	}
	p.SendPipelineSync()
	_ = p.Flush() // an error is returned when the answer is read
	return p
}

// readAnswer reads the result of the statement that enqueues.
func readAnswer(p *pgconn.Pipeline) (a answer, err error) {
	err = readNext(p, func(rows *pgconn.ResultReader) error {
		if !rows.NextRow() {
			return nil // readNext returns the error of the statement instead
		}
		return json.Unmarshal(rows.Values()[0], &a)
	})
	return a, err
}

// readNext reads the result of the next statement, and passes it to f if the statement returns rows.
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

// readEnd reads the remaining results of a pipeline. If it returns no error, the transaction has
// committed.
func readEnd(p *pgconn.Pipeline) (err error) {
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
