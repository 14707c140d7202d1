package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient"
	"github.com/qtop/qtop/pgclient/pgtest"
	"github.com/qtop/qtop/pgclient/queue"
)

// BenchmarkConsole measures the console as its user sees it: the built program in a terminal, on a PostgreSQL with
// 1,000,000 dead letters in 100,000 groups (QTOP_TEST_GROUPS changes that; ten per group).
//
//   - first-frame: from the start of the process to the first frame, in ms, where the database answers at once and
//     where each of its replies takes 2 s.
//   - key: from a key press to the first byte of its frame, in ms, in the groups of pane 5 and in the list of all
//     dead letters, while each reply of the database takes 2 s.
//   - page: reading 200 rows of a group of 38,000 dead letters and their count, in ms, for each source, and of all open
//     ones.
//   - ten: the server's processor time for one console at rest and for ten, in ms per second, their ratio, and the
//     sessions of the ten.
func BenchmarkConsole(b *testing.B) {
	groups := 100_000
	if text := os.Getenv("QTOP_TEST_GROUPS"); text != "" {
		var err error
		groups, err = strconv.Atoi(text)
		require.NoError(b, err)
	}
	db := pgtest.New(b)
	root := db.Pool(b, "")
	pgtest.FillDead(b, root, groups, 7)
	pgtest.FillDead(b, root, 5, 38_000) // three groups of jobs, one of events, one of webhooks
	for _, sql := range []string{"SELECT public.fn_queue_counter_compact()", "VACUUM ANALYZE"} {
		_, err := root.Exec(b.Context(), sql)
		require.NoError(b, err)
	}
	path := pgtest.NewPath(b, pgtest.TCP(b, db.Server))
	login := db.DSN(operator(b, db))
	slow := pgtest.OverTCP(b, login, path.Addr())
	console := func(b *testing.B, dsn string) *screen {
		b.Helper()
		return onScreen(b, 120, 40, program(b, filepath.Join(built, "qtop"), dsn))
	}
	quit := func(s *screen) {
		require.NoError(b, s.cmd.Process.Kill())
		<-s.exit
	}

	for _, delay := range []time.Duration{0, 2 * time.Second} {
		b.Run(fmt.Sprintf("first-frame/replies-after-%v", delay), func(b *testing.B) {
			path.Delay(delay)
			defer path.Delay(0)
			var took []float64
			for b.Loop() {
				for range 20 {
					took = append(took, ms(firstFrame(b, program(b, filepath.Join(built, "qtop"), slow))))
				}
			}
			percentiles(b, took)
		})
	}

	for _, view := range []struct {
		name string
		keys []string
		show string
	}{
		{"groups", []string{"5"}, "CODE_"},
		{"dead-letters", []string{"5", "G", enter}, "Dead letters"},
	} {
		b.Run("key/"+view.name, func(b *testing.B) {
			s := console(b, slow)
			s.until("live")
			for _, k := range view.keys {
				s.keys(k)
				time.Sleep(time.Second) // wait for the list of the level: not every list changes the screen when it arrives
			}
			s.until(view.show)
			path.Delay(2 * time.Second)
			defer path.Delay(0)
			var took []float64
			for b.Loop() {
				for i := range 400 {
					key := "jk"[i/10%2 : i/10%2+1]                          // ten times down, ten times up
					time.Sleep(time.Duration(20+i*7%23) * time.Millisecond) // about as fast as a held key repeats, but not at the moments of refreshes
					select {
					case <-s.raw.seen:
					default:
					}
					start := time.Now()
					_, err := s.tty.WriteString(key)
					require.NoError(b, err)
					took = append(took, ms((<-s.raw.seen).Sub(start)))
				}
			}
			percentiles(b, took)
			quit(s)
		})
	}

	client, err := pgclient.Open(b.Context(), pgclient.Options{DSN: login})
	require.NoError(b, err)
	for _, page := range []struct {
		name, filter string
		least        int64
	}{
		{"job", "source=job code=CODE_2 endpoint=kind_2 domain=dom_2", 38_000},
		{"event", "source=event code=E_1 endpoint=type_1 domain=dom_1", 38_000},
		{"webhook", "source=webhook code=W_0 subscription=1001 domain=webhook", 38_000},
		{"all", "", 5 * 38_000},
	} {
		b.Run("page/"+page.name, func(b *testing.B) {
			var took []float64
			for b.Loop() {
				for range 30 {
					start := time.Now()
					p, err := client.List(b.Context(), queue.Query{Kind: queue.ListDeadLetters, Filter: page.filter, Limit: 200})
					took = append(took, ms(time.Since(start)))
					require.NoError(b, err)
					require.Len(b, queue.Of[[]queue.DeadLetter](p), 200)
					require.GreaterOrEqual(b, p.Total, page.least)
				}
			}
			percentiles(b, took)
		})
	}

	client.Close() // its sessions are not those of a console
	b.Run("ten", func(b *testing.B) {
		const span = 15 * time.Second
		load := func() float64 {
			before := serverTime(b, db.Server.Pid())
			time.Sleep(span) // the time that is measured
			return ms(serverTime(b, db.Server.Pid())-before) / span.Seconds()
		}
		sessions := func() (n int) {
			require.NoError(b, root.QueryRow(b.Context(), `SELECT count(*) FROM pg_stat_activity
				WHERE datname = current_database() AND application_name LIKE 'qtop %'`).Scan(&n))
			return n
		}
		var open []*screen
		rest := func(n int) {
			for len(open) < n {
				s := console(b, login)
				s.until("live")
				open = append(open, s)
			}
			time.Sleep(10 * time.Second) // connections that only the start needed are closed 5 s after their last use
		}
		for b.Loop() {
			none := load()
			rest(1)
			one := load() - none
			rest(10)
			ten := load() - none
			b.ReportMetric(one, "ms/s-one")
			b.ReportMetric(ten, "ms/s-ten")
			b.ReportMetric(ten/one, "ten/one")
			b.ReportMetric(float64(sessions()), "backends")
			for _, s := range open {
				quit(s)
			}
			open = nil
		}
		b.ReportMetric(0, "ns/op")
	})
}

// firstFrame returns the time from the start of the console to the output of the name of its first pane, and kills it.
// No emulator takes part: it would draw on the same processors.
func firstFrame(b *testing.B, cmd *exec.Cmd) time.Duration {
	cmd.Env = append(cmd.Env, "TERM=xterm-256color", "LANG=C.UTF-8", "TZ=UTC")
	start := time.Now()
	tty, err := pty.StartWithSize(cmd, &pty.Winsize{Cols: 120, Rows: 40})
	require.NoError(b, err)
	defer func() {
		require.NoError(b, cmd.Process.Kill())
		_ = cmd.Wait()
		require.NoError(b, tty.Close())
	}()
	require.NoError(b, tty.SetReadDeadline(start.Add(patience)))
	var all []byte
	for buf := make([]byte, 1<<16); !bytes.Contains(all, []byte("Over")); {
		n, err := tty.Read(buf)
		require.NoError(b, err, "no first frame")
		all = append(all, buf[:n]...)
	}
	return time.Since(start)
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// percentiles reports the median, the 95th percentile and the largest of the
// times in took, in ms.
func percentiles(b *testing.B, took []float64) {
	slices.Sort(took)
	b.ReportMetric(took[len(took)/2], "ms/p50")
	b.ReportMetric(took[len(took)*95/100], "ms/p95")
	b.ReportMetric(took[len(took)-1], "ms/max")
	b.ReportMetric(0, "ns/op")
}

// serverTime returns the processor time of a server and its processes,
// including those that have ended.
func serverTime(b *testing.B, postmaster int) (spent time.Duration) {
	b.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/stat")
	require.NoError(b, err)
	if len(all) == 0 {
		b.Skip("no /proc: the processor time of the server is not known")
	}
	for _, name := range all {
		raw, err := os.ReadFile(name)
		if err != nil { // the process has ended
			continue
		}
		f := strings.Fields(string(raw[bytes.LastIndexByte(raw, ')')+1:])) // fields of /proc/PID/stat after the name: f[0] is the state, f[1] the parent
		ticks := f[11:13]
		switch {
		case filepath.Base(filepath.Dir(name)) == strconv.Itoa(postmaster):
			ticks = f[11:15] // including children that have ended
		case f[1] != strconv.Itoa(postmaster):
			continue
		}
		for _, t := range ticks {
			n, err := strconv.Atoi(t)
			require.NoError(b, err)
			spent += time.Duration(n) * 10 * time.Millisecond
		}
	}
	return spent
}
