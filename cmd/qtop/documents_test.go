package main

// Tests that run the command blocks of README.md and docs/*.md, in the order of each
// document, like a reader who pastes one block after the other.
//
// A document that installs the schema begins with an empty database, whose owner is an
// ordinary login with CREATEROLE; any other document begins with an installed database and
// a login with every role. The language of a fenced block decides what is checked:
//
//	sh       bash runs it; every command must succeed
//	console  lines "$ command" run; the lines below must be in the output, in this order:
//	         "…" matches anything; an id, time or age matches any other
//	sql      every statement must succeed; a line "-- {…" must be in the answer; a block that makes a
//	         temporary table is what a program repeats: it must succeed again in the same session
//	yaml     a configuration file that must be valid
//	json     must be valid
//	text     shown, nothing to run
//	go       a whole program, which is built and run; python, js: run where the machine has them
//
// Any other block fails the test. A comment in the line before a block changes that:
//
//	<!-- not run: REASON -->     the block is only named, with the reason
//	<!-- stays running -->       the block runs beside the following blocks
//	<!-- within N s -->          the block is repeated until its output is as shown
//	<!-- exits with N -->        one of its commands ends with this code
//	<!-- needs PROGRAM … -->     runs where these PostgreSQL programs exist, not older than the server
//	<!-- …, with python -->      left out where the machine lacks the language

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/config"
	"github.com/qtop/qtop/pgclient/embedded"
	"github.com/qtop/qtop/pgclient/pgsession"
	"github.com/qtop/qtop/pgclient/pgtest"
)

// docBlock is a fenced block of a document.
type docBlock struct {
	line       int // number of the first line of text
	lang, text string
	mark       string // the comment in the line before the fence
	indent     string // indentation of the fence, inside a list
}

// docBlocks returns the fenced blocks of a Markdown text.
func docBlocks(text string) (blocks []docBlock) {
	var open *docBlock
	before := ""
	for i, line := range strings.Split(text, "\n") {
		fence, isFence := strings.CutPrefix(strings.TrimSpace(line), "```")
		switch {
		case isFence && open == nil:
			open = &docBlock{line: i + 2, lang: fence, mark: before, indent: line[:len(line)-len(strings.TrimLeft(line, " "))]}
		case isFence:
			blocks = append(blocks, *open)
			open = nil
		case open != nil:
			open.text += strings.TrimPrefix(line, open.indent) + "\n"
		}
		before = ""
		if m := docMark.FindStringSubmatch(strings.TrimSpace(line)); m != nil {
			before = m[1]
		}
	}
	return blocks
}

var docMark = regexp.MustCompile(`^<!-- (.*) -->$`)

// rule is the meaning of the mark of a block.
type rule struct {
	notRun  string // reason why the block is not run; "": it is run
	stays   bool
	within  time.Duration
	needs   []string
	allowed []int // exit codes in addition to 0
	with    string
}

func (b docBlock) rule() (r rule, err error) {
	if m := withLanguage.FindStringSubmatch(b.mark); m != nil {
		b.mark, r.with = m[1], m[2]
	}
	what, reason, _ := strings.Cut(b.mark, ": ")
	var n int
	switch {
	case b.mark == "":
	case what == "not run" && reason != "":
		r.notRun = reason
	case b.mark == "stays running":
		r.stays = true
	case what == b.mark && strings.HasPrefix(what, "needs pg_"):
		r.needs = strings.Fields(what)[1:]
	case scans(b.mark, "within %d s", &n):
		r.within = time.Duration(n) * time.Second
	case scans(b.mark, "exits with %d", &n):
		r.allowed = []int{n}
	default:
		err = fmt.Errorf("the mark %q is unknown", b.mark)
	}
	return r, err
}

// repeats returns how long a block is repeated. What readers are promised holds on a machine that is
// not busy with other tests.
func (r rule) repeats() time.Duration {
	if r.within == 0 {
		return 0
	}
	return max(r.within, patience)
}

func scans(text, format string, n *int) bool {
	_, err := fmt.Sscanf(text, format, n)
	return err == nil
}

// console splits the text of a console block into commands with the output shown below.
func console(text string) (commands, shown []string) {
	for _, line := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		if command, ok := strings.CutPrefix(line, "$ "); ok {
			commands, shown = append(commands, command), append(shown, "")
		} else if len(shown) > 0 {
			shown[len(shown)-1] += line + "\n"
		}
	}
	return commands, shown
}

var changing = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f-]{27}|\d{4}-\d\d-\d\dT[0-9:.]+Z|\b(\d+[dhms] ?)+\b`)

// missing returns the first shown line that the output lacks; "" if the output
// has all lines in this order.
func missing(shown, output string) string {
	lines := strings.Split(output, "\n")
	for _, want := range strings.Split(shown, "\n") {
		if strings.Trim(want, " …") == "" {
			continue
		}
		var pattern strings.Builder
		for i, word := range strings.Fields(want) {
			if i > 0 {
				pattern.WriteString(`\s+`)
			}
			word = regexp.QuoteMeta(changing.ReplaceAllString(word, "…"))
			pattern.WriteString(strings.ReplaceAll(word, "…", ".*"))
		}
		re := regexp.MustCompile(pattern.String())
		at := slices.IndexFunc(lines, re.MatchString)
		if at < 0 {
			return want
		}
		lines = lines[at+1:]
	}
	return ""
}

// reader runs the blocks of one document, like a person who follows it.
type reader struct {
	dir   string
	conn  *pgx.Conn
	in    *os.File
	out   *bufio.Reader
	n     int
	free  map[string]string // free addresses in place of those of the documents
	lacks []string          // languages of the documents that this machine lacks
	// copied is the DSN in place of the DSN of the database shop_copy; "": the
	// document makes no copy.
	copied string
	// names has the ids of rows in place of those of the document.
	names map[string]string
	// incidents has, by a command of a block, what must happen before the block; it returns what must
	// happen after it.
	incidents map[string]func(*testing.T) (after func())
}

func newReader(t *testing.T, dsn string) *reader {
	t.Helper()
	r := &reader{dir: t.TempDir(), free: map[string]string{}}
	require.NoError(t, os.Symlink(filepath.Join(built, "qtop"), filepath.Join(r.dir, "qtop")))
	var err error
	r.conn, err = pgsession.Connect(context.Background(), dsn)
	require.NoError(t, err)
	t.Cleanup(func() { _ = r.conn.Close(context.Background()) })

	_, err = r.conn.Exec(context.Background(), `SET search_path = "$user", public`) // as in psql
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), "bash", "--noprofile", "--norc")
	cmd.Dir = r.dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Env = append(os.Environ(), "PATH="+built+":"+os.Getenv("PATH"), "QTOP_DSN="+dsn, "QTOP_ACTOR=anna", "QTOP_HOST_ID=host-1",
		"HOME="+r.dir, "XDG_CONFIG_HOME="+filepath.Join(r.dir, ".config"), "XDG_STATE_HOME="+r.dir)
	stdin, in, err := os.Pipe()
	require.NoError(t, err)
	out, stdout, err := os.Pipe()
	require.NoError(t, err)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, stdout, stdout
	require.NoError(t, cmd.Start())
	_, _ = stdin.Close(), stdout.Close()
	r.in, r.out = in, bufio.NewReader(out)
	_, err = in.WriteString(`trap 'printf "\n@@failed %d %s\n" $? "$BASH_COMMAND"' ERR` + "\n")
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) // also ends the blocks that stay running
		_ = in.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = out.Close()
	})
	return r
}

var failure = regexp.MustCompile(`^@@failed (\d+) (.*)$`)

// shell runs text in the reader's shell. It returns the output and the commands that
// failed with a code that is not allowed.
func (r *reader) shell(t *testing.T, text string, allowed []int) (output string, failed []string) {
	t.Helper()
	r.n++
	file := filepath.Join(r.dir, fmt.Sprintf(".block%d", r.n))
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	_, err := fmt.Fprintf(r.in, ". %s </dev/null\nprintf '\\n@@done\\n'\n", file)
	require.NoError(t, err)
	var out strings.Builder
	for {
		line, err := r.out.ReadString('\n')
		require.NoError(t, err, "the shell ended: %s", out.String())
		line = strings.TrimSuffix(line, "\n")
		if line == "@@done" {
			return out.String(), failed
		}
		if m := failure.FindStringSubmatch(line); m != nil {
			if code, _ := strconv.Atoi(m[1]); !slices.Contains(allowed, code) {
				failed = append(failed, fmt.Sprintf("exit code %d: %s", code, m[2]))
			}
			continue
		}
		out.WriteString(line + "\n")
	}
}

// statements splits an SQL text: a statement ends at a semicolon at the end of
// a line.
var statements = regexp.MustCompile(`;[ \t]*(--[^\n]*)?\n`)

func (r *reader) sql(text string) (answer string, err error) {
	for _, statement := range statements.Split(text, -1) {
		results, err := r.conn.PgConn().Exec(context.Background(), statement).ReadAll()
		if err != nil {
			return answer, fmt.Errorf("%w\n%s", err, statement)
		}
		for _, result := range results {
			for _, row := range result.Rows {
				for _, value := range row {
					answer += string(value) + "\n"
				}
			}
		}
	}
	return answer, nil
}

// follow runs a block and returns what is wrong with it, or "".
func (r *reader) follow(t *testing.T, b docBlock, rule rule) string {
	t.Helper()
	switch b.lang {
	case "sh":
		text := b.text
		if rule.stays {
			text = "{ " + b.text + "} >>running.log 2>&1 &\n"
		}
		out, failed := r.shell(t, text, rule.allowed)
		if len(failed) > 0 {
			return strings.Join(failed, "\n") + "\n" + out
		}
	case "console":
		commands, shown := console(b.text)
		for i := range commands {
			for until := time.Now().Add(rule.repeats()); ; time.Sleep(100 * time.Millisecond) { // between two attempts
				out, failed := r.shell(t, commands[i]+"\n", rule.allowed)
				lack := missing(shown[i], out)
				if len(failed) == 0 && lack == "" {
					break
				}
				if time.Now().After(until) {
					return fmt.Sprintf("%s\nlacks the line %q\n%s\n%s", commands[i], lack, out, strings.Join(failed, "\n"))
				}
			}
		}
	case "sql":
		answer, err := r.sql(b.text)
		if err != nil {
			return err.Error()
		}
		for _, line := range strings.Split(b.text, "\n") {
			if shown, ok := strings.CutPrefix(line, "-- {"); ok && missing("{"+shown, answer) != "" {
				return fmt.Sprintf("the answer is not %q:\n%s", "{"+shown, answer)
			}
		}
		if strings.Contains(b.text, "CREATE TEMP TABLE") {
			if _, err := r.sql(b.text); err != nil {
				return "repeated: " + err.Error()
			}
		}
	case "yaml":
		home := t.TempDir()
		require.NoError(t, os.Mkdir(filepath.Join(home, "qtop"), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(home, "qtop", "config.yaml"), []byte(b.text), 0o600))
		if _, err := config.Load(config.Sources{ConfigHome: home, Hostname: "host-1", User: "anna"}); err != nil {
			return err.Error()
		}
	case "json":
		if !json.Valid([]byte(b.text)) {
			return "this is not valid JSON"
		}
	case "text":
	default:
		return fmt.Sprintf("a block of language %q is neither run nor marked as not run", b.lang)
	}
	return ""
}

// documents returns the blocks to run, by the name of their file.
func documents(t *testing.T) map[string][]docBlock {
	t.Helper()
	names, err := filepath.Glob("../../docs/*.md")
	require.NoError(t, err)
	all := map[string][]docBlock{}
	for _, name := range append(names, "../../README.md") {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		if blocks := docBlocks(string(text)); len(blocks) > 0 {
			all[filepath.Base(name)] = blocks
		}
	}
	require.Contains(t, all, "README.md")
	return all
}

func TestDocumentsRun(t *testing.T) {
	t.Parallel()
	pgtest.NotHostile(t, "documents are followed in a database of the reader's own")
	for name, blocks := range documents(t) {
		installs := slices.ContainsFunc(blocks, func(b docBlock) bool {
			r, _ := b.rule()
			return r.notRun == "" && strings.Contains(b.text, "qtop migrate up")
		})
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			switch {
			case name == "runbook.md":
				r := newRunbook(t)
				followAll(t, r, blocks)
				require.Empty(t, r.incidents, "incidents of no block")
				return
			case !installs:
				followAll(t, newReader(t, everyRole(t)), blocks)
				return
			}
			server := ownersServer(t) // one server per document: a document may drop roles
			r := newReader(t, server.DSN("shop", "shop"))
			r.copied = server.DSN("shop", "shop_copy")
			followAll(t, r, blocks)
		})
	}
}

// A mistake in a document is noticed: a block that is neither run nor marked, a
// command that fails, and an answer that is not the shown one.
func TestDocumentMistakesAreSeen(t *testing.T) {
	t.Parallel()
	r := newReader(t, pgtest.Empty(t).DSN(""))
	for text, want := range map[string]string{
		"```\nqtop status\n```":                                      `a block of language ""`,
		"```ini\n[Unit]\n```":                                        `a block of language "ini"`,
		"```sh\ntrue\nfalse | cat\nls /nowhere\n```":                 "exit code 2: ls /nowhere",
		"```sh\nif true; then\n```":                                  "syntax error",
		"<!-- exits with 3 -->\n```sh\n(exit 4)\n```":                "exit code 4",
		"```console\n$ echo 3 dead\n2 dead\n```":                     `lacks the line "2 dead"`,
		"```console\n$ printf 'a\\nb\\n'\nb\na\n```":                 `lacks the line "a"`,
		"```console\n$ qtop flush\n```":                              "exit code 2: qtop flush",
		"```sql\nSELECT 1;\nSELECT nothing;\n```":                    "SELECT nothing",
		"```sql\nSELECT '{\"n\": 1}';\n-- {\"n\": 2}\n```":           `the answer is not "{\"n\": 2}"`,
		"```sql\nCREATE TEMP TABLE mine AS SELECT 1;\n```":           "repeated: ERROR: relation \"mine\" already exists",
		"```yaml\nexecuter: mailer\n```":                             "executer",
		"```json\n{\"a\": }\n```":                                    "not valid JSON",
		"```console\n$ echo at 2026-01-02T03:04:05Z\nat 2025-1\n```": `lacks the line "at 2025-1"`,
	} {
		blocks := docBlocks(text)
		require.Len(t, blocks, 1, text)
		rule, err := blocks[0].rule()
		require.NoError(t, err, text)
		require.Contains(t, r.follow(t, blocks[0], rule), want, text)
	}
	for text, lang := range map[string]string{
		"<!-- exits with 3 -->\n```sh\n(exit 3)\n```":                                             "sh",
		"```console\n$ echo at 2026-01-02T03:04:05Z\nat 2025-11-22T01:00:00Z\n```":                "console",
		"   ```console\n   $ echo 7cb3f6f2-3c07-4f0f-8a6a-2f8a2f1f9c11 in 3s\n   … in 2s\n   ```": "console",
	} {
		blocks := docBlocks(text)
		require.Len(t, blocks, 1, text)
		require.Equal(t, lang, blocks[0].lang)
		rule, err := blocks[0].rule()
		require.NoError(t, err, text)
		require.Empty(t, r.follow(t, blocks[0], rule), text)
	}
	for _, mark := range []string{"not run", "not run: ", "later", "within s", "needs", "needs: pg_dump"} {
		_, err := docBlock{mark: mark}.rule()
		require.Error(t, err, mark)
	}
}

func followAll(t *testing.T, r *reader, blocks []docBlock) {
	t.Helper()
	for _, b := range blocks {
		rule, err := b.rule()
		require.NoError(t, err, "line %d", b.line)
		if rule.notRun != "" {
			t.Logf("line %d: not run: %s", b.line, rule.notRun)
			continue
		}
		if lack := r.without(t, rule.needs); lack != "" {
			t.Logf("line %d: not run: %s", b.line, lack)
			continue
		}
		b.text = addresses.ReplaceAllStringFunc(b.text, func(a string) string { return r.address(t, a) })
		b.text = strings.ReplaceAll(b.text, "postgres://shop@localhost/shop_copy", r.copied)
		for made, real := range r.names {
			b.text = strings.ReplaceAll(b.text, made, real)
		}
		after := r.incident(t, b)
		begun := time.Now()
		b, run, wrong := r.asShell(t, b)
		if run && !slices.Contains(r.lacks, rule.with) {
			wrong = r.follow(t, b, rule)
		}
		running, _ := os.ReadFile(filepath.Join(r.dir, "running.log"))
		require.Empty(t, wrong, "line %d\nbeside it:\n%s", b.line, running)
		after()
		t.Logf("line %d: %s", b.line, time.Since(begun).Round(time.Millisecond))
	}
}

// without returns which of the programs is missing here, or is older than the
// server and therefore refused by it; "": all can run.
func (r *reader) without(t *testing.T, programs []string) string {
	t.Helper()
	for _, program := range programs {
		out, err := exec.CommandContext(t.Context(), program, "--version").Output()
		if err != nil {
			return "there is no " + program + " here"
		}
		server, major := strings.Split(r.conn.PgConn().ParameterStatus("server_version"), ".")[0], regexp.MustCompile(`\) (\d+)`).FindSubmatch(out)
		if major == nil || fmt.Sprintf("%3s", major[1]) < fmt.Sprintf("%3s", server) {
			return program + " is older than the server"
		}
	}
	return ""
}

// ownersServer starts a server with one login and its database. The login may
// create roles and databases, and is no superuser.
func ownersServer(t *testing.T) *embedded.Server {
	t.Helper()
	s := pgtest.OwnServer(t, nil)
	superuser(t, s, "CREATE ROLE shop LOGIN CREATEROLE CREATEDB PASSWORD 'shop'")
	superuser(t, s, "CREATE DATABASE shop OWNER shop")
	return s
}

func superuser(t *testing.T, s *embedded.Server, sql string) {
	t.Helper()
	conn, err := pgsession.Connect(t.Context(), s.DSN(embedded.Superuser, "postgres"))
	require.NoError(t, err)
	defer func() { _ = conn.Close(context.Background()) }()
	_, err = conn.Exec(t.Context(), sql)
	require.NoError(t, err)
}
