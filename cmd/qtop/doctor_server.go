package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/qtop/qtop/pgclient/inspect"
	"github.com/qtop/qtop/pgclient/queue"
)

// Checks of `qtop doctor`: the disk and the standbys of the server.

const (
	// heldWAL is how many bytes of WAL one replication slot may hold before the
	// doctor reports it.
	heldWAL = 1 << 30
	// lateReplay is how far a standby may be behind before the doctor reports
	// the delay.
	lateReplay = 10 * time.Second
	// agedRows and tooAgedRows are the ages in transactions at which the doctor
	// reports a database: autovacuum freezes rows at 200 million, and at 1.6 billion
	// PostgreSQL itself does all it can (vacuum_failsafe_age).
	agedRows, tooAgedRows = 1_000_000_000, 1_600_000_000
)

// diskFindings reports what fills the disk of the server, how full the disk is
// if the server runs on this machine, and the state of replication.
func diskFindings(ctx context.Context, x patient) []finding {
	s, err := inspect.Server(ctx, x.client)
	if err != nil {
		return []finding{{"bad", "disk", queue.Said(err), ""}}
	}
	var free, total uint64
	socket := x.session.Address.String() == "local socket" && s.Peer == "[local]"
	if dir := s.DataDirectory.String(); dir != "" && (socket || backendHere(s)) {
		free, total = room(dir)
	}
	followers, err := inspect.Followers(ctx, x.client)
	all := append(judgeDisk(s, followers, free, total), judgeAge(s)...)
	if err != nil {
		return append(all, finding{"bad", "replication", queue.Said(err), ""})
	}
	all = append(all, judgeReplication(s, followers)...)
	if n := len(followers); n > 0 && followers[0].Of > n {
		all = append(all, finding{"note", "replication", queue.Clean(fmt.Sprintf("looked at: the %d replication slots and standbys furthest behind, of %d", n, followers[0].Of)),
			"read pg_replication_slots and pg_stat_replication for the others"})
	}
	return all
}

// judgeAge judges how near the server is to the end of its transaction ids.
func judgeAge(s inspect.ServerState) []finding {
	if s.Age < agedRows {
		return nil
	}
	return []finding{{queue.Choose(s.Age < tooAgedRows, "note", "bad"), "wraparound",
		queue.Clean(fmt.Sprintf("the oldest rows of the database %s are %d million transactions old: at 2,147 million the server refuses every write", s.OldestDatabase, s.Age/1_000_000)),
		"end what holds VACUUM up (qtop activity: old transactions, prepared ones, replication slots), then run VACUUM in that database, as a superuser"}}
}

// backendHere reports whether the process of this session runs on this machine: the kernel's
// process with its number has the title that PostgreSQL gives it. A loopback address alone may be
// a tunnel or a container. False where /proc does not show processes.
func backendHere(s inspect.ServerState) bool {
	title, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", s.Backend))
	return err == nil && strings.HasPrefix(string(title), "postgres: ") && strings.Contains(string(title), " "+s.Login) && strings.Contains(string(title), s.Peer)
}

// judgeDisk judges the free space for rows and WAL; free and total are bytes.
// total 0: not known.
func judgeDisk(s inspect.ServerState, followers []inspect.Follower, free, total uint64) []finding {
	var out []finding
	about := "the database has " + size(uint64(max(s.Bytes, 0))) //nolint:gosec // a size
	switch {
	case total == 0:
		why, do := "this is not the server's machine, or cannot be told to be", "run qtop doctor there, or watch its free space there"
		if s.DataDirectory.Empty() {
			why, do = "this login may not ask where the data are", "GRANT pg_read_all_settings TO this login and run qtop doctor on the server's machine, or watch its free space there"
		}
		out = append(out, finding{"note", "disk", queue.Clean(about + "; how full the disk is, qtop does not see: " + why), do})
	case free < 1<<30 || free < total/20:
		out = append(out, finding{"bad", "disk", queue.Clean(fmt.Sprintf("%s of %s are free on the disk of the server; %s", size(free), size(total), about)),
			"make room: a full disk stops every write; see retention in qtop flags, and what holds WAL below"})
	case free < total/7:
		out = append(out, finding{"note", "disk", queue.Clean(fmt.Sprintf("%s of %s are free on the disk of the server; %s", size(free), size(total), about)), "make room before it is full"})
	default:
		out = append(out, finding{"ok", "disk", queue.Clean(fmt.Sprintf("%s of %s are free on the disk of the server; %s", size(free), size(total), about)), ""})
	}
	if s.ArchiveFailing {
		out = append(out, finding{"bad", "disk", queue.Clean("WAL cannot be archived, so all of it stays on the disk"), "fix archive_command: pg_stat_archiver and the log of the server say what failed"})
	}
	for _, f := range followers {
		if !f.Slot {
			continue
		}
		drop := "start what reads it, or SELECT pg_drop_replication_slot(" + literal(f.Name.String()) + ") where nothing does any more"
		holds := fmt.Sprintf("the replication slot %s, which %s, holds %s of WAL", f.Name, queue.Choose(f.Active, "is read", "nobody reads"), size(uint64(max(f.Bytes, 0)))) //nolint:gosec // a size
		switch {
		case f.Status == "lost" || f.Status == "unreserved":
			out = append(out, finding{"bad", "disk", queue.Clean("the replication slot " + f.Name.String() + " has lost or is about to lose WAL that it needs (" + f.Status + ")"), drop + ", and set up its standby again"})
		case f.Bytes > heldWAL:
			out = append(out, finding{queue.Choose(f.Active, "note", "bad"), "disk", queue.Clean(holds), drop})
		case !f.Active:
			out = append(out, finding{"note", "disk", queue.Clean(holds), drop})
		}
	}
	return out
}

// judgeReplication judges how far the standbys of the server are behind, or
// this server if it is a standby.
func judgeReplication(s inspect.ServerState, followers []inspect.Follower) []finding {
	var out []finding
	if s.SyncMissing {
		out = append(out, finding{"bad", "replication", queue.Clean("commits wait for standbys of synchronous_standby_names = " + s.SyncNames.String() + ", and too few are connected: nothing that is written gets done"),
			"start the standby, or take it out of synchronous_standby_names and reload"})
	}
	if s.Cut {
		out = append(out, finding{"note", "replication", queue.Clean("this standby receives nothing from its primary: what it shows gets older"), "see primary_conninfo and the log of the server"})
	}
	if s.Replay > lateReplay {
		out = append(out, finding{"note", "replication", queue.Clean("this standby is " + queue.DurationText(s.Replay.Round(time.Second)) + " behind: so old is what it shows"), "ask the primary, or see what holds up replay (long queries here, disk)"})
	}
	standbys, unknown := 0, 0
	for _, f := range followers {
		if f.Slot {
			continue
		}
		standbys++
		if f.Unknown {
			unknown++
			continue
		}
		if f.Delay > lateReplay || f.Bytes > heldWAL {
			out = append(out, finding{"note", "replication", queue.Clean(fmt.Sprintf("the standby %s is %s and %s of WAL behind: after a failover so much would be missing or late",
				f.Name, queue.DurationText(f.Delay.Round(time.Second)), size(uint64(max(f.Bytes, 0))))), "see its load, its disk and the network"}) //nolint:gosec // a size
		}
	}
	if unknown > 0 {
		out = append(out, finding{"note", "replication", queue.Clean(fmt.Sprintf("this login may not see how far %s behind", queue.Choose(unknown == 1, "the standby is", fmt.Sprintf("%d standbys are", unknown)))),
			"GRANT pg_read_all_stats to it, or ask as another login"})
	}
	if len(out) == 0 {
		out = []finding{{"ok", "replication", queue.Clean(queue.Choose(standbys == 0, "no standby is connected", queue.Plural(standbys, "standby follows", "standbys follow"))), ""}}
	}
	return out
}

// literal returns s as an SQL string literal, for a line that is to be copied.
func literal(s string) string {
	return "'" + strings.ReplaceAll(queue.Clean(s).String(), "'", "''") + "'"
}

// size formats a number of bytes with a binary unit, such as 1.5 GiB.
func size(n uint64) string {
	for _, u := range []struct {
		name string
		of   uint64
	}{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if n >= u.of {
			return fmt.Sprintf("%.1f %s", float64(n)/float64(u.of), u.name)
		}
	}
	return queue.Plural(int64(n), "byte", "bytes") //nolint:gosec // less than 1024
}
