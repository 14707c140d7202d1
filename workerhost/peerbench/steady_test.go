package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/qtop/qtop/pgclient/embedded"
)

func TestMain(m *testing.M) {
	embedded.SuperviseMain()
	m.Run()
}

func TestLedgerKnowsWhatIsLostAndWhatRanTwice(t *testing.T) {
	t.Parallel()
	begin := time.Unix(1000, 0)
	ms := func(n int) int64 { return begin.Add(time.Duration(n) * time.Millisecond).UnixNano() }
	w := &world{steadyRun: &steadyRun{steadyOptions: steadyOptions{rate: 5}}, who: contestant{name: "c", load: jobsLoad}, ledger: &steadyLedger{}}
	l := w.ledger
	l.tell(0, ms(0), true)
	l.start(0, ms(10))
	l.start(1, ms(25)) // the request of job 1 arrives before the producer reports its insert
	l.tell(1, ms(5), true)
	l.tell(2, ms(6), true) // never started
	l.tell(3, ms(7), false)
	l.tell(4, ms(8), true)
	l.start(4, ms(38))
	l.start(4, ms(90)) // started a second time
	l.tell(5, ms(2000), true)
	if n := l.waiting(); n != 2 {
		t.Errorf("%d jobs are inserted and not started, not 2", n)
	}
	r := w.result(&span{phase: phase{name: "clean"}, begin: begin, end: begin.Add(time.Second)}, 0)
	if r.Inserted != 4 || r.Lost != 1 || r.Twice != 1 || r.Unanswered != 1 || r.PerSecond != 3 {
		t.Errorf("%+v", r)
	}
	if *r.StartP50 != 30 || r.StartP99 != nil { // the start delays are 10, 20 and 30 ms; one job was never started
		t.Errorf("p50 %v, p99 %v", *r.StartP50, r.StartP99)
	}
	if b := w.beside([]result{r}); b == nil || *b != (beside{Lost: 1}) { // job 5
		t.Errorf("beside the phase: %+v", b)
	}
	l.tell(6, ms(3000), false)
	l.start(5, ms(4000))
	l.start(5, ms(4001))
	if b := w.beside([]result{r}); b == nil || *b != (beside{Twice: 1, Unanswered: 1}) {
		t.Errorf("beside the phase: %+v", b)
	}
	if b := (&world{steadyRun: &steadyRun{}, ledger: &steadyLedger{}}).beside(nil); b != nil {
		t.Errorf("nothing happened, and it says %+v", b)
	}
	if r.Recovered != nil || r.WAL == nil {
		t.Errorf("without a disturbance there is no recovery: %+v", r)
	}
}

// Where the queue keeps its finished jobs, a job that was started and never completed is lost, and
// it is not counted as completed. The depth is that of jobs not completed.
func TestLedgerCountsRecordedCompletions(t *testing.T) {
	t.Parallel()
	begin := time.Unix(1000, 0)
	ms := func(n int) int64 { return begin.Add(time.Duration(n) * time.Millisecond).UnixNano() }
	w := &world{steadyRun: &steadyRun{}, who: contestant{name: "c", load: jobsLoad, recorded: "SELECT"}, ledger: &steadyLedger{}}
	l := w.ledger
	for n, sent := range []int{0, 10, 20, 30} {
		l.tell(n, ms(sent), true)
		l.start(n, ms(sent+5))
	}
	l.tell(4, ms(40), true) // never started, and completed nevertheless: a payload without a request
	l.records = []record{{0, ms(1), ms(250)}, {1, ms(11), ms(1500)}, {3, ms(31), ms(131)}, {4, ms(41), ms(61)}}
	r := w.result(&span{phase: phase{name: "clean"}, begin: begin, end: begin.Add(time.Second)}, 0)
	if !r.Recorded || r.Method != method || r.Lost != 1 || r.PerSecond != 3 {
		t.Errorf("%+v", r)
	}
	if r.DepthMax != 4 || r.DepthEnd != 2 { // at 100 ms: all but number 4; at the end: 1 and 2
		t.Errorf("depth %d / %d", r.DepthMax, r.DepthEnd)
	}
	if r.EndP99 == nil || *r.EndP99 != 1489 {
		t.Errorf("end to end %v", r.EndP99)
	}
	l.records = nil
	if r := w.result(&span{phase: phase{name: "clean"}, begin: begin, end: begin.Add(time.Second)}, 0); r.Lost != 5 || r.EndP99 != nil || r.PerSecond != 0 {
		t.Errorf("without a record all are lost: %+v", r)
	}
}

func TestRecoveredNeedsThreeGoodSecondsInARow(t *testing.T) {
	t.Parallel()
	over := time.Unix(1000, 0)
	l := &steadyLedger{}
	slow := map[int]int64{0: 500, 1: 10, 2: 500} // start delay in ms by second; in all other seconds it is 10 ms
	for second := range 8 {
		took, isSlow := slow[second]
		if !isSlow {
			took = 10
		}
		sent := over.Add(time.Duration(second)*time.Second + time.Millisecond).UnixNano()
		l.tell(second, sent, true)
		l.start(second, sent+took*int64(time.Millisecond))
	}
	if s := l.recovered(over, over.Add(8*time.Second), 4); s != 3 {
		t.Errorf("recovered after %v s, not 3", s)
	}
	if s := l.recovered(over, over.Add(5*time.Second), 4); s != -1 {
		t.Errorf("two good seconds are no recovery: %v", s)
	}
	if s := l.recovered(over, over.Add(8*time.Second), 2); s != -1 {
		t.Errorf("10 ms are over twice 2 ms and 5 ms: %v", s)
	}
}

func TestPacerCountsElapsedTime(t *testing.T) {
	t.Parallel()
	at := time.Unix(1000, 0)
	p := pacer{at: at}
	total := 0
	for range 1000 { // a ticker that is late: 3 ms between ticks instead of 1 ms
		at = at.Add(3 * time.Millisecond)
		total += p.due(at, 800)
	}
	if total < 2399 || total > 2400 {
		t.Errorf("%d jobs were due in 3 s at 800 a second", total)
	}
	if n := p.due(at.Add(time.Minute), 800); n != 800 {
		t.Errorf("after a minute without an insert %d are due, not those of a second", n)
	}
}

func TestJobNumberOfEachLoad(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		`{"n": 7}`:                             "7 <nil>", // a webhook, a peer
		`{"job_id": "x", "payload": {"n": 0}}`: "0 <nil>",
		`{"target_ref": "bench/12", "payload": {"event_id": "x"}}`: "12 <nil>", // a routed event
		`{"payload": {}}`: "0 the payload of a request has no number n",
	} {
		n, err := jobNumber(strings.NewReader(body))
		if got := fmt.Sprint(n, " ", err); got != want {
			t.Errorf("%s: %s instead of %s", body, got, want)
		}
	}
}

// A course whose results are in the file is not measured again; a course with a missing phase is, and
// so is one of another build, rate or length.
func TestMeasuredCoursesAreNotRunAgain(t *testing.T) {
	t.Parallel()
	o := steadyOptions{dir: t.TempDir(), rate: 800, length: time.Minute, idleInTx: time.Hour}
	s := &steadyRun{steadyOptions: o}
	clean, idle := courses()[0], courses()[1]
	of := func(who, phase string, planned time.Duration) result {
		return result{Method: method, Contestant: who, Version: "1", Load: jobsLoad, Phase: phase, Rate: 800, Planned: planned.Seconds(), At: time.Unix(1, 0)}
	}
	older, slow, short, rebuilt := of("d", "clean", time.Minute), of("e", "clean", time.Minute), of("f", "clean", time.Second), of("g", "clean", time.Minute)
	older.Method, slow.Rate, rebuilt.Version = method-1, 200, "2"
	if err := s.keep([]result{of("c", "clean", time.Minute), of("c", idleInTx, time.Hour), older, slow, short, rebuilt}); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(s.file(), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = f.WriteString(`{"contestant": "c", "phase": "recov`) // a line that was cut off when the machine stopped
	_ = f.Close()
	again := &steadyRun{steadyOptions: o}
	if again.results, err = readResults(again.file()); err != nil {
		t.Fatal(err)
	}
	c := contestant{name: "c", version: "1", long: true}
	if !again.measured(c, clean) || again.measured(c, idle) {
		t.Errorf("%+v", again.results)
	}
	for _, name := range []string{"d", "e", "f", "g"} {
		if again.measured(contestant{name: name, version: "1"}, clean) {
			t.Errorf("%s was measured otherwise", name)
		}
	}
	if err := again.keep([]result{of("c", "recovery", time.Minute)}); err != nil {
		t.Fatal(err)
	}
	if again.results, err = readResults(again.file()); err != nil || len(again.results) != 6 || !again.measured(c, idle) {
		t.Errorf("after the line that was cut off: %+v, %v", again.results, err)
	}
	again.idleInTx = 2 * time.Hour
	if again.measured(c, idle) || !again.measured(contestant{name: "c", version: "1"}, clean) {
		t.Error("another length of idle-in-tx concerns who takes part in its comparison")
	}
}

// A second run of the same folder is refused until the first has ended.
func TestOneRunMeasuresIntoAFolder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first, err := lockFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lockFolder(dir); err == nil || !strings.Contains(err.Error(), "another run measures into "+dir) {
		t.Errorf("a second run: %v", err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	second, err := lockFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	_ = second.Close()
}

func TestReportGoesBetweenTheMarkers(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "doc.md")
	if err := os.WriteFile(file, []byte("before\n"+docBegin+"\nold\n"+docEnd+"\nafter\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p50 := 12.5
	s := &steadyRun{all: true, results: []result{
		{Contestant: "late", Version: "0.1", Load: jobsLoad, Phase: idleInTx, Busy: 0.09, Tenths: []float64{1, 100, -1}, Lost: 2, Server: "PostgreSQL 15"},
		{Contestant: "qtop", Version: "v9, file ab", Load: jobsLoad, Phase: "clean", Busy: 0.11, StartP50: &p50, Recorded: true, Rate: 800,
			Restarts: 7, Waiting: 5, Server: "PostgreSQL 15", Beside: &beside{Lost: 3, Unanswered: 1}},
		{Contestant: "qtop, webhooks", Version: "v9, file ab", Load: webhooksLoad, Phase: "clean"},
	}}
	if err := writeIntoDocument(file, s.report()); err != nil {
		t.Fatal(err)
	}
	text, _ := os.ReadFile(file)
	got := string(text)
	if !strings.HasPrefix(got, "before\n") || !strings.HasSuffix(got, docEnd+"\nafter\n") || strings.Contains(got, "old") {
		t.Errorf("%s", got)
	}
	for _, want := range []string{`qtop ` + loaded + ` \| 12.5 / – / –`, `idle-in-tx, 0s \| late \| –`, `clean.*\n.*idle-in-tx`, `late  ▁█×`, `was busy with other work`,
		`; 800, 0 jobs a second;`, `late .* \| 0.00 † \| 0 / 0 † \|.*\| 2 † \|`, `qtop .* \| 0.00 \| 0 / 0 \|.*\| 5 still waiting \| 0 \| 0 \| 7 \| – \|`,
		`Measured: qtop v9, file ab; late 0.1; PostgreSQL 15\.\n`, `†: this queue keeps no finished jobs`,
		`\n- qtop, the course that begins with clean: 3 lost, 1 inserts without an answer\n`} {
		if !regexp.MustCompile(want).MatchString(got) {
			t.Errorf("no %s in\n%s", want, got)
		}
	}
	if err := os.WriteFile(file, []byte("no markers"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := writeIntoDocument(file, "x"); err == nil {
		t.Error("a document without markers was written")
	}
}

// The producer inserts at the rate, and reports each job that it inserted and each that was
// refused.
func TestProducerTellsWhatItInserted(t *testing.T) {
	if testing.Short() {
		t.Skip("short: the producer is not run on a server")
	}
	server, err := embedded.Start(t.Context(), embedded.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Stop(context.Background()) })
	dsn := server.DSN(embedded.Superuser, "postgres")
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if _, err := conn.Exec(t.Context(), "CREATE TABLE job (n int PRIMARY KEY CHECK (n % 10 <> 0))"); err != nil {
		t.Fatal(err)
	}
	in, control := io.Pipe()
	reader, out := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		ended <- produceSteadily(t.Context(), producerSpec{DSN: dsn, SQL: "INSERT INTO job VALUES ($1)"}, in, out)
		_ = out.Close()
	}()
	go func() { _, _ = io.WriteString(control, "rate 500\n") }()
	l := &steadyLedger{}
	for lines := bufio.NewScanner(reader); lines.Scan(); {
		var n int
		var sent int64
		var ok bool
		if _, err := fmt.Sscanf(lines.Text(), "%d %d %t", &n, &sent, &ok); err != nil {
			t.Fatalf("%q: %v", lines.Text(), err)
		}
		if l.tell(n, sent, ok); n == 200 {
			_ = control.Close()
		}
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	var inserted int
	if err := conn.QueryRow(t.Context(), "SELECT count(*) FROM job").Scan(&inserted); err != nil {
		t.Fatal(err)
	}
	if l.acknowledged != inserted || inserted < 180 || len(l.unanswered) < 20 {
		t.Errorf("acknowledged %d, refused %d, in the table %d", l.acknowledged, len(l.unanswered), inserted)
	}
}
