package enqueue_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient"
	"github.com/qtop/qtop/pgclient/enqueue"
	"github.com/qtop/qtop/pgclient/pgtest"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// Enqueue in your own transaction, with your own pool: the order and its job are committed
// together or not at all.
func ExampleIn() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("QTOP_DSN"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer pool.Close()
	notifier := enqueue.NewNotifier(pool) // one per process
	defer notifier.Close(ctx)             // before the pool is closed

	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "INSERT INTO orders VALUES (17, 'acme')"); err != nil {
			return err
		}
		made, err := enqueue.In(ctx, tx, []enqueue.Job{{
			Kind: "order.ship", Domain: "shop", Executor: "external_worker",
			Payload: json.RawMessage(`{"order": 17}`), IdempotencyKey: "order-17",
		}})
		fmt.Println(made.New, "new,", made.Existing, "existing")
		return err
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	notifier.Notify("shop")
}

// Enqueue in a separate transaction. A second call with the key returns the same job.
func ExampleProducer_Enqueue() {
	ctx := context.Background()
	client, err := pgclient.Open(ctx, pgclient.Options{DSN: os.Getenv("QTOP_DSN")})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()
	producer := enqueue.New(client) // one per process
	defer producer.Close(ctx)       // before the client is closed

	for range 2 {
		_, created, err := producer.Enqueue(ctx, enqueue.Job{
			Kind: "order.bill", Domain: "shop", Executor: "external_worker", IdempotencyKey: "order-17",
		})
		fmt.Println(created, err)
	}
}

// The examples print the expected output. go test does not run them, because they need a database,
// so this test does.
func TestExamples(t *testing.T) {
	db := pgtest.New(t)
	login := pgtest.Login(t, db, "event_ingest_writer")
	conn := db.Conn(t, "")
	_, err := conn.Exec(t.Context(), `CREATE TABLE public.orders (id bigint PRIMARY KEY, customer text NOT NULL);
		GRANT INSERT ON public.orders TO `+pgx.Identifier{login}.Sanitize())
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(), "UPDATE public.dot_config SET value = 'true' WHERE key = 'queue.notify.bridge_enabled'")
	require.NoError(t, err)
	t.Setenv("QTOP_DSN", db.DSN(login))
	layers := wakeSignals(t, db)

	require.Equal(t, "1 new, 0 existing\n", printed(t, ExampleIn))
	require.Equal(t, []string{"shop job"}, layers(), "it is sent before the example ends")
	require.Equal(t, "true <nil>\nfalse <nil>\n", printed(t, ExampleProducer_Enqueue))
	var jobs, orders int
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT (SELECT count(*) FROM public.job_queue), (SELECT count(*) FROM public.orders)").Scan(&jobs, &orders))
	require.Equal(t, []int{2, 1}, []int{jobs, orders})
}

// printed returns what f writes to standard output.
func printed(t *testing.T, f func()) string {
	t.Helper()
	r, w, err := os.Pipe()
	require.NoError(t, err)
	stdout := os.Stdout
	os.Stdout = w
	defer func() { os.Stdout = stdout }()
	f()
	require.NoError(t, w.Close())
	out, err := io.ReadAll(r)
	require.NoError(t, err)
	return string(out)
}
