package lists

import (
	"context"
	"fmt"
	"strconv"

	"github.com/qtop/qtop/pgclient/filtersql"
	"github.com/qtop/qtop/pgclient/parseid"
	"github.com/qtop/qtop/pgclient/pgpool"
	"github.com/qtop/qtop/pgclient/pgrow"
	"github.com/qtop/qtop/pgclient/queue"
)

var operationColumns = map[string]filtersql.Column{
	"id": {Expr: "o.operation_id"}, "state": {Expr: "o.state"}, "by": {Expr: "o.created_by"}, "kind": {Expr: "o.kind", Shown: filtersql.Words("o.kind", queue.OperationWords())}, "selection": {Expr: "o.filter"},
}

// operations reads a page of bulk operations.
func operations(ctx context.Context, db *pgpool.Pool, q queue.Query, p *queue.Page) error {
	b, _, err := filtersql.Parse(q.Filter, queue.OperationFields(), operationColumns)
	if err != nil {
		return err
	}
	return readByNumber(ctx, db, q, p, b, "public.queue_bulk_operation o", "o.operation_id", func(o queue.Operation) int64 { return o.ID },
		func(rest string) ([]queue.Operation, error) { return pgrow.Operations(ctx, db, rest, b.Args...) })
}

// operation reads one bulk operation with the outcomes of its items.
func operation(ctx context.Context, db *pgpool.Pool, q queue.Query, p *queue.Page) error {
	id, err := parseid.Operation(q.ID)
	if err != nil {
		return err
	}
	found, err := pgrow.Operations(ctx, db, "WHERE o.operation_id = $1", id)
	if err != nil {
		return err
	}
	if len(found) == 0 {
		return queue.NewError(queue.KindFailed, fmt.Sprintf("there is no operation %d", id), "", "see qtop ops")
	}
	b := filtersql.New(nil)
	b.And("i.operation_id = " + b.Arg(id))
	b.And("i.item_no < o.next_item")
	b.And("i.outcome IS NOT NULL")
	if err := b.Before("i.item_no", q.After); err != nil {
		return err
	}
	items, err := pgrow.All[queue.OperationItem](ctx, db, `SELECT i.item_no, i.target, COALESCE(i.outcome, ''), i.why, COALESCE(i.new_id, ''), i.at,
		COALESCE(i.first_result, ''), i.first_code FROM public.queue_bulk_operation_item i
		JOIN public.queue_bulk_operation o USING (operation_id)`+b.Clause()+" ORDER BY i.item_no DESC LIMIT "+strconv.Itoa(q.Limit), b.Args...)
	if n := len(items); n == q.Limit {
		p.Next = strconv.FormatInt(items[n-1].No, 10)
	}
	p.Rows, p.Total = &queue.OperationDetail{Operation: found[0], Items: items}, found[0].Frozen
	return err
}
