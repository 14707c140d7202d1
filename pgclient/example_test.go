package pgclient_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient"
	"github.com/qtop/qtop/pgclient/pgtest"
	"github.com/qtop/qtop/pgclient/queue"
)

// Read what the console shows. The login needs queue_viewer.
func ExampleClient_Snapshot() {
	ctx := context.Background()
	client, err := pgclient.Open(ctx, pgclient.Options{DSN: os.Getenv("QTOP_DSN"), Program: "shop-monitor"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()

	snapshot, err := client.Snapshot(ctx, time.Second) // at most a second old; all consoles share the stored snapshot
	if err != nil {
		fmt.Println(err)
		return
	}
	for section, why := range snapshot.Missing { // such as a right that the login lacks
		fmt.Println(section, "is not there:", why)
	}
	for _, lane := range snapshot.Queues {
		fmt.Println(lane.Kind, lane.Domain, lane.Queued)
	}
}

// Look for work when a wake signal arrives, and at an interval, for signals are only hints.
func ExampleClient_NewListener() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	client, err := pgclient.Open(ctx, pgclient.Options{DSN: os.Getenv("QTOP_DSN")})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()

	look := make(chan struct{}, 1) // capacity 1: several signals cause one look
	hint := func() {
		select {
		case look <- struct{}{}:
		default:
		}
	}
	listener, err := client.NewListener("shop", func(queue.Wake) { hint() }, hint)
	if err != nil {
		fmt.Println(err)
		return
	}
	go listener.Run(ctx)

	poll := time.NewTicker(30 * time.Second)
	defer poll.Stop()
	select { // in a loop
	case <-look:
	case <-poll.C:
	case <-ctx.Done():
		return
	}
	fmt.Println("look for work")
}

// The examples print the expected output. go test does not run them, because they need a database,
// so this test does.
func TestExamples(t *testing.T) {
	db := pgtest.New(t)
	_, err := db.Conn(t, "").Exec(t.Context(), "SELECT public.fn_job_enqueue('order.ship', 'shop', 'external_worker')")
	require.NoError(t, err)
	t.Setenv("QTOP_DSN", db.DSN(pgtest.Login(t, db, "queue_viewer")))
	require.Equal(t, "order.ship shop 1\n", printed(t, ExampleClient_Snapshot))
	require.Equal(t, "look for work\n", printed(t, ExampleClient_NewListener))

	t.Setenv("QTOP_DSN", db.DSN(pgtest.Login(t, db, "event_ingest_writer")))
	require.Contains(t, printed(t, ExampleClient_Snapshot), "is not there:")
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
