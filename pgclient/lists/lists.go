// Package lists reads what the console's panes and the list verbs show on demand: a page of a
// list, or the details of one row. Start with [Read]; the function readers maps each kind of list
// to what reads it. [Report] reads what was recorded in a span of time.
package lists

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/qtop/qtop/pgclient/pgerror"
	"github.com/qtop/qtop/pgclient/pgpool"
	"github.com/qtop/qtop/pgclient/queue"
)

// pageSize is the number of rows in a page if the query does not set Limit.
const pageSize = 200

// reader reads a page of a list.
type reader func(ctx context.Context, db *pgpool.Pool, q queue.Query, p *queue.Page) error

// readers maps each list to its reader. To add a list, write a reader and add a line here; a
// line in queue.ExportLists makes it exportable.
func readers() map[queue.ListKind]reader {
	return map[queue.ListKind]reader{
		queue.ListDeadLetters:        deadLetters,
		queue.ListDeadGroups:         plain(deadGroups),
		queue.ListDeadLetter:         whole(deadLetter),
		queue.ListJobs:               jobs,
		queue.ListJob:                whole(job),
		queue.ListOperations:         operations,
		queue.ListOperation:          plain(operation),
		queue.ListEndpoints:          endpoints,
		queue.ListEndpoint:           plain(endpoints),
		queue.ListLeases:             plain(leases),
		queue.ListNotify:             notifications,
		queue.ListEventSubscriptions: subscriptions,
		queue.ListResolution:         whole(resolution),
		queue.ListWhy:                whole(why),
		queue.ListRoutes:             plain(routes),
		queue.ListConsumers:          plain(consumers),
		queue.ListEventTypes:         plain(eventTypes),
		queue.ListProducers:          plain(producers),
		queue.ListCron:               whole(cronOf),
		queue.ListAudit:              audit,
		queue.ListFlagHistory:        flagHistory,
		queue.ListAlertHistory:       plain(alertHistory),
		queue.ListActivity:           activity,
		queue.ListQuarantine:         plain(quarantine),
	}
}

// Kinds returns the kinds of lists that [Read] reads, by name.
func Kinds() []queue.ListKind { return slices.Sorted(maps.Keys(readers())) }

// plain returns a reader that refuses a filter, for a list that takes none. Every reader in the map
// readers applies the filter or is plain, so that no list looks filtered and is not.
func plain(read reader) reader {
	return func(ctx context.Context, db *pgpool.Pool, q queue.Query, p *queue.Page) error {
		if q.Filter != "" {
			return queue.NewError(queue.KindUsage, "the list "+string(q.Kind)+" takes no filter", "", "leave the filter out")
		}
		return read(ctx, db, q, p)
	}
}

// whole turns a function that reads one value into a reader of one page.
func whole[T any](read func(context.Context, *pgpool.Pool, queue.Query) (T, error)) reader {
	return plain(func(ctx context.Context, db *pgpool.Pool, q queue.Query, p *queue.Page) (err error) {
		p.Rows, err = read(ctx, db, q)
		return err
	})
}

// stamp sets the time of the page to the present time of the server.
func stamp(ctx context.Context, db *pgpool.Pool, p *queue.Page) error {
	return db.QueryRow(ctx, "SELECT now()").Scan(&p.AsOf)
}

// Read reads one page of the list q.Kind. An unknown kind is a usage error.
func Read(ctx context.Context, db *pgpool.Pool, q queue.Query) (queue.Page, error) {
	return readWithin(ctx, db, q, pgpool.ReadTimeout)
}

func readWithin(ctx context.Context, db *pgpool.Pool, q queue.Query, limit time.Duration) (queue.Page, error) {
	within, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if q.Limit <= 0 || q.Limit > queue.MostPage {
		q.Limit = pageSize
	}
	var p queue.Page
	read, ok := readers()[q.Kind]
	if !ok {
		return p, &queue.Error{Kind: queue.KindUsage, What: queue.Clean("there is no list " + string(q.Kind))}
	}
	began := time.Now()
	err := read(within, db, q, &p)
	if err == nil && p.AsOf.IsZero() {
		err = stamp(within, db, &p)
	}
	if err != nil && q.Filter != "" && time.Since(began) >= limit*9/10 && answers(ctx, db) {
		return p, queue.NewError(queue.KindFailed, fmt.Sprintf("the database could not evaluate this filter within %.0f s", limit.Seconds()), "",
			"add a term that leaves few rows, such as code=…, id=… or kind=…; a word without a field is looked for in every row").Because(err)
	}
	return p, pgerror.InWords(pgerror.Translate(err))
}

// answers reports whether the database answers a trivial statement now. If so, a statement that
// timed out was slow, and the connection is not broken.
func answers(ctx context.Context, db *pgpool.Pool) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	var one int
	return db.QueryRow(ctx, "SELECT 1").Scan(&one) == nil
}
