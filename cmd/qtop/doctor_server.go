package main

import (
	"context"
	"fmt"
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
)

// diskFindings reports what fills the disk of the server, how full the disk is
// if the server runs on this machine, and the state of replication.
func diskFindings(ctx context.Context, x patient) []finding {
	s, err := inspect.Server(ctx, x.client)
	if err != nil {
		return []finding{{"bad", "disk", queue.Said(err), ""}}
	}
	followers, err := inspect.Followers(ctx, x.client)
	if err != nil {
		return []finding{{"bad", "replication", queue.Said(err), ""}}
	}
	var free, total uint64
	if dir := s.DataDirectory.String(); dir != "" && x.session.Address.String() == "local socket" {
		free, total = room(dir)
	}
	return append(judgeDisk(s, followers, free, total), judgeReplication(s, followers)...)
}

// judgeDisk judges the free space for rows and WAL; free and total are bytes.
// total 0: not known.
func judgeDisk(s inspect.ServerState, followers []inspect.Follower, free, total uint64) []finding {
	var out []finding
	about := "the database has " + size(uint64(max(s.Bytes, 0))) //nolint:gosec // a size
	switch {
	case total == 0:
		out = append(out, finding{"note", "disk", queue.Clean(about + "; how full the disk is, qtop does not see: this login may not ask, or the server is another machine"), "watch its free space there"})
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
		out = append(out, finding{"note", "replication", queue.Clean("this standby is " + s.Replay.Round(time.Second).String() + " behind: so old is what it shows"), "ask the primary, or see what holds up replay (long queries here, disk)"})
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
				f.Name, f.Delay.Round(time.Second), size(uint64(max(f.Bytes, 0))))), "see its load, its disk and the network"}) //nolint:gosec // a size
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
