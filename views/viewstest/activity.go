package viewstest

import (
	"time"

	"github.com/qtop/qtop/pgclient/queue"
)

// Sessions returns a report that holds the oldest snapshot, a migration that blocks a host, that
// host, a replication slot without its standby, a listener, and a session that the login may not
// see.
func Sessions() []queue.Activity {
	ago := func(d time.Duration) *time.Time { t := Now().Add(-d); return &t }
	pid := func(n int64) *int64 { return &n }
	session := func(n int64, login, program, state string, since time.Duration) queue.Activity {
		started := ago(3 * time.Hour)
		return queue.Activity{
			ID: queue.SessionID(n, *started), Kind: "session", Pid: &n, Started: started, Login: queue.Clean(login), Program: queue.Clean(program),
			State: queue.Clean(state), Since: ago(since), Seen: true,
		}
	}
	report := session(4711, "etl", "etl@bi", "idle in transaction", 38*time.Minute)
	report.Begun, report.Snapshot, report.Oldest, report.Client = ago(41*time.Minute), pid(812_400), true, queue.Clean("10.1.2.3")
	migration := session(5120, "deploy", "app migrate", "idle in transaction", 4*time.Minute)
	migration.Begun, migration.Blocks, migration.Tables = ago(5*time.Minute), []int64{5233, 5234}, []queue.Text{queue.Clean("job_queue"), queue.Clean("events")}
	host := session(5233, "worker", "qtop host work", "active", 4*time.Minute)
	host.Begun, host.BlockedBy, host.Waits, host.Ours = ago(4*time.Minute), []int64{5120}, queue.Clean("Lock: relation"), true
	slot := queue.Activity{ID: "slot standby_2", Kind: "slot", Program: queue.Clean("slot standby_2"), State: queue.Clean("inactive"), Snapshot: pid(9_120), Seen: true}
	listener := session(5301, "worker", "qtop host wake", "idle", time.Minute)
	listener.Listens, listener.Ours = true, true
	hidden := queue.Activity{ID: "6001", Kind: "session", Pid: pid(6001), Login: queue.Clean("postgres")}
	return []queue.Activity{report, migration, host, slot, listener, hidden}
}
