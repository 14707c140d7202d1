package main

// This file is `qtop doctor`: what stands between this machine and a working
// queue, each line with its remedy.

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/qtop/qtop/pgclient"
	"github.com/qtop/qtop/pgclient/inspect"
	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/pgclient/schema"
)

// finding is one line of the doctor. ok, note (works, with less), bad.
type finding struct {
	State  string     `json:"state"`
	Check  string     `json:"check"`
	Found  queue.Text `json:"found"`
	Remedy string     `json:"remedy"`
}

func (a *app) doctorCmd() *cobra.Command {
	staging := false
	cmd := &cobra.Command{
		Use: "doctor", Short: "Check connection, TLS, pooler, standby, logins, schema, rights and clock", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := a.client(cmd.Context(), 0)
			if err != nil {
				return err
			}
			defer client.Close()
			if staging {
				return a.doctorStaging(cmd.Context(), client)
			}
			all := a.examine(cmd.Context(), client)
			var rows [][]string
			bad := false
			for _, f := range all {
				rows = append(rows, []string{f.State, f.Check, f.Found.String(), f.Remedy})
				bad = bad || f.State == "bad"
			}
			a.print(all, []string{"STATE", "CHECK", "FOUND", "REMEDY"}, rows)
			if bad {
				return &exitError{1}
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&staging, "staging", false, "the verification lines of staged notifications, key=value, from the live catalogue")
	return cmd
}

func (a *app) examine(ctx context.Context, c *pgclient.Client) []finding {
	s, err := c.Session(ctx)
	if err != nil {
		var do string
		if q, ok := asQueueError(err); ok {
			do = q.Do.String()
		}
		return []finding{{"bad", "connection", queue.Said(err), do}}
	}
	all := []finding{{"ok", "connection", queue.Clean(fmt.Sprintf("%s at %s, PostgreSQL %s", s.User, s.Address, s.Version)), ""}}
	all = append(all, tlsFinding(s), choose(s.Pooler, finding{"note", "pooler", queue.Clean("a pooler is in the path"),
		"set listen_dsn to a direct connection, or live with polling"}, finding{"ok", "pooler", queue.Clean("none in the path"), ""}),
		choose(s.InRecovery, finding{"note", "standby", queue.Clean("this is a standby: read only"),
			"connect to the primary to act"}, finding{"ok", "standby", queue.Clean("this is the primary"), ""}))
	if s.Misfit != nil {
		return append(all, finding{"bad", "schema", s.Misfit.What, s.Misfit.Do.String()})
	}
	all = append(elsewhereFindings(ctx, c), all...)
	all = append(all, loginFindings(ctx, c, s, a.settings.ReadOnly)...)
	all = append(all, schemaFindings(ctx, c)...)
	missing := map[string]bool{}
	for _, act := range queue.Actions() {
		if need := s.Needs[act.ID]; need != "" && !missing[need] {
			missing[need] = true
			all = append(all, finding{"note", "rights", queue.Clean("without " + need + ": no " + string(act.ID)), "GRANT " + need + " TO the login, where that is meant"})
		}
	}
	if len(missing) == 0 {
		all = append(all, finding{"ok", "rights", queue.Clean("every action"), ""})
	}
	all = append(all, roleFindings(ctx, c)...)
	all = append(all, foreignFindings(ctx, c)...)
	all = append(all, signingFindings(ctx, c)...)
	all = append(all, a.fileFindings()...)
	return append(all, clockFinding(ctx, c), hostFinding(ctx, c), idFinding(ctx, c), neverDueFinding(ctx, c), partitionFinding(ctx, c, s), sizeFinding(ctx, c))
}

// elsewhereFindings are the first: this is a copy of the database, or another server
// than the one that is meant.
func elsewhereFindings(ctx context.Context, c *pgclient.Client) []finding {
	s, err := c.Snapshot(ctx)
	if err != nil || !s.Missing["all"].Empty() {
		return nil // a later line says so
	}
	var out []finding
	if !s.Server.CloneOf.Empty() {
		of, do, _ := strings.Cut(s.Server.CloneOf.String(), ": run ")
		out = append(out, finding{"bad", "clone", queue.Clean(of), do})
	}
	if !s.Server.Unexpected.Empty() {
		out = append(out, finding{"bad", "server", s.Server.Unexpected, "connect to the server that is meant, or name this one in expect_server"})
	}
	return out
}

// shownDifferences is how many objects that differ the doctor names.
const shownDifferences = 20

// schemaFindings names the functions, views, triggers, rights and comments that
// are not as this program declares them.
func schemaFindings(ctx context.Context, c *pgclient.Client) []finding {
	carried := schema.Current()
	differs, err := inspect.SchemaDifferences(ctx, c)
	switch {
	case err != nil:
		return []finding{{"bad", "schema", queue.Said(err), ""}}
	case len(differs) == 0:
		return []finding{{"ok", "schema", queue.Clean(fmt.Sprintf("version %d, code %d (%s), as this program knows it",
			carried.Version(), carried.Code, carried.Hash)), ""}}
	}
	var out []finding
	for i, d := range differs {
		if i == shownDifferences {
			out = append(out, finding{"note", "schema", queue.Clean(fmt.Sprintf("%d more objects differ", len(differs)-i)), "qtop migrate status names all"})
			break
		}
		state := "note"
		if d.Harmful() {
			state = "bad"
		}
		out = append(out, finding{state, "schema", queue.Clean(d.Object + ": " + d.Why), "qtop migrate up puts this program's form back"})
	}
	return out
}

func choose[T any](cond bool, yes, no T) T {
	if cond {
		return yes
	}
	return no
}

func tlsFinding(s queue.Session) finding {
	switch {
	case s.Address.String() == "local socket":
		return finding{"ok", "tls", queue.Clean("a local socket needs none"), ""}
	case s.TLS:
		return finding{"ok", "tls", queue.Clean("encrypted"), ""}
	}
	return finding{"note", "tls", queue.Clean("not encrypted"), "sslmode=verify-full in the connection string"}
}

// clockFinding compares clocks: times are compared by the server alone, a skew
// only makes ages on this screen wrong.
func clockFinding(ctx context.Context, c *pgclient.Client) finding {
	before := time.Now()
	var at time.Time
	if err := c.Read().QueryRow(ctx, "SELECT clock_timestamp()").Scan(&at); err != nil {
		return finding{"bad", "clock", queue.Said(err), ""}
	}
	mid := before.Add(time.Since(before) / 2)
	skew := at.Sub(mid).Abs().Round(time.Millisecond)
	if skew > 5*time.Second {
		return finding{"note", "clock", queue.Clean("this machine and the server differ by " + skew.String()), "run NTP on both"}
	}
	return finding{"ok", "clock", queue.Clean("within " + skew.String() + " of the server"), ""}
}

func hostFinding(ctx context.Context, c *pgclient.Client) finding {
	s, err := c.Snapshot(ctx)
	switch {
	case err != nil:
		return finding{"bad", "snapshot", queue.Said(err), ""}
	case !s.Missing["all"].Empty():
		return finding{"bad", "snapshot", s.Missing["all"], "GRANT queue_viewer TO the login"}
	case s.Flow.HostsAlive == 0:
		return finding{"note", "hosts", queue.Clean("no worker host is alive"), "run qtop worker, or start loops in the console (gw)"}
	}
	return finding{"ok", "hosts", queue.Clean(fmt.Sprintf("%d alive", s.Flow.HostsAlive)), ""}
}

// partitionFinding makes the partitions to come, as retention_sweep does, where
// this login may.
func partitionFinding(ctx context.Context, c *pgclient.Client, s queue.Session) finding {
	if s.InRecovery {
		return finding{"note", "partitions", queue.Clean("not looked at on a standby"), "ask the primary"}
	}
	made, caught, err := inspect.EnsurePartitions(ctx, c)
	switch {
	case queue.KindOf(err) == queue.KindPermission:
		return finding{"note", "partitions", queue.Clean("not looked at: that needs dot_executor"), "a host's retention_sweep does it every hour"}
	case err != nil:
		return finding{"bad", "partitions", queue.Said(err), "run qtop doctor again; a long transaction may hold the table"}
	case caught > 0:
		return finding{"bad", "partitions", queue.Clean(fmt.Sprintf("%d default partitions hold rows", caught)), "run qtop migrate up"}
	case made > 0:
		return finding{"note", "partitions", queue.Clean(fmt.Sprintf("%d were missing and are made now", made)), "see why retention_sweep does not run"}
	}
	return finding{"ok", "partitions", queue.Clean("made ahead, none caught in a default"), ""}
}

// sizeFinding says how large the tables are that nothing ever deletes from.
func sizeFinding(ctx context.Context, c *pgclient.Client) finding {
	sizes, err := inspect.KeptSizes(ctx, c)
	if err != nil {
		return finding{"bad", "kept for ever", queue.Said(err), ""}
	}
	return finding{"ok", "kept for ever", sizes, ""}
}
