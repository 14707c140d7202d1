package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/pgtest"
)

// With a mistake in the configuration file, the verbs, flags and profiles are completed all the
// same, the script of a shell is printed, and config show says what is wrong.
func TestBrokenConfiguration(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", dir)
	require.NoError(t, os.Mkdir(filepath.Join(dir, "qtop"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "qtop", "config.yaml"), []byte("read_only: ture\nprofiles: {prod: {}}\n"), 0o600))
	for _, x := range []struct {
		args, out, errs string
		code            int
	}{
		{"__complete stat", "status\t", "", 0},
		{"__completeNoDesc stat", "status\n", "", 0},
		{"__complete status --output ", "json\n", "", 0},
		{"__complete status --profile ", "prod\n", "", 0},
		{"__complete flag set ", ":4\n", "", 0},
		{"completion bash", "# bash completion", "", 0},
		{"config show", "read_only", "read_only cannot be", 78},
		{"config show -o json", `"key":"read_only"`, "read_only cannot be", 78},
		{"config check", "", "read_only cannot be", 78},
	} {
		var out, errs bytes.Buffer
		require.Equal(t, x.code, run(t.Context(), strings.Split(x.args, " "), strings.NewReader(""), &out, &errs), x.args)
		require.Contains(t, out.String(), x.out, x.args)
		require.Contains(t, errs.String(), x.errs, x.args)
		if x.errs == "" {
			require.NotContains(t, errs.String(), "qtop:", x.args)
		}
	}
}

// Ids are completed from the database. Without a database, or without the right
// to read, completion prints nothing.
func TestLiveCompletion(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	f := furnish(t)
	db := f.db
	complete := func(dsn string, words ...string) (out, errs string) {
		var stdout, stderr bytes.Buffer
		args := append([]string{cobra.ShellCompRequestCmd, "--dsn", dsn}, words...)
		require.Zero(t, run(t.Context(), args, strings.NewReader(""), &stdout, &stderr))
		return stdout.String(), strings.TrimSpace(stderr.String())
	}
	dsn := db.DSN(operator(t, db))
	for _, x := range []struct{ words, want string }{
		{"flag set ", "webhook.worker.enabled\t"},
		{"executor deregister ", "undertaker\t"},
		{"executor beat ", "undertaker\t"},
		{"executor subscriptions ", "undertaker\t"},
		{"tick ", "iu_outbound_default"},
		{"webhooks ", "1\tt.HTTP_503 to http_503.example"},
		{"endpoint suspend 9 ", "1\tt.HTTP_503"},
		{"webhook rotate-secret ", "1\tt.HTTP_503"},
		{"webhook limit ", "1\tt.HTTP_503"},
		{"webhook limit 1 --per-second ", "none\n"},
		{"dlq --filter ", "code:HTTP_503\t"},
		{"requeue --filter code:HTTP", "code:HTTP_503\t"},
		{"resolve --filter age>1s_code:", "age>1s code:HTTP_503\t"},
		{"status --output ", "json\n"},
		{"event-type set iu/made --lane ", "delayed\n"},
		{"flag set webhook.worker.enabled ", "false\n"},
		{"flag set queue.scheduler.mode ", "hybrid\n"},
		{"flag set queue.backlog.warn_seconds ", "700\n"},
		{"dlq ", f.open + "\tHTTP_503 http_503.example"},
		{"dlq show ", f.jobDeadLetter + "\t"},
		{"requeue ", f.open + "\tHTTP_503"},
		{"reopen ", f.closed + "\tHTTP_503"},
		{"undo ", f.requeued + "\tHTTP_503"},
		{"erase ", f.event + "\tt.HTTP_503 to"},
		{"session terminate ", f.session},
		{"event-type set ", "system/queue_worker_silent\t"},
		{"executor producer ", "external_worker"},
		{"route set ", "kg\trouting on"},
		{"consumer disable ", "reindex\tkg/node.changed, enabled"},
		{"subscription mute ", "3\t"},
		{"executor disable ", f.jobSubscription + "\tundertaker"},
		{"job show ", f.job + "\tkg.reindex of kg, queued"},
		{"job cancel --kind ", "kg.reindex\tkg"},
		{"queues --domain ", "kg"},
		{"job enqueue --executor ", "external_worker"},
		{"ops show ", "1\tplanned"},
		{"why ", "job\n"},
		{"why job kg.reindex in ", "kg\n"},
		{"flag set webhook.retry_schedule ", "5s_30s_2m"},
		{"export ", "dlq\n"},
		{"export dlq ", ":0\n"},
		{"export dlq dead.csv ", ":4\n"},
		{"version ", ":4\n"},
		{"profile add ", ":4\n"},
		{"quarantine retry ", f.quarantine + "\tcounter_fold"},
		{"status --theme ", "dark"},
		{"worker --loops ", "webhook_worker"},
		{"demo --as ", "viewer"},
	} {
		words := strings.Split(x.words, " ")
		for i := range words {
			words[i] = strings.ReplaceAll(words[i], "1s_", "1s ")
		}
		out, errs := complete(dsn, words...)
		require.Contains(t, "\n"+out, "\n"+strings.ReplaceAll(x.want, "s_", "s "), x.words)
		require.NotContains(t, errs, "Error", x.words)
	}
	out, _ := complete(dsn, "webhook", "rotate-secret", "1", "")
	require.Equal(t, ":4\n", out, "one subscription is enough")
	out, _ = complete(dsn, "executor", "deregister", "")
	require.NotContains(t, out, "webhook_worker", "a tick worker is no executor of these verbs")
	for _, where := range []string{"postgres://nobody@127.0.0.1:1/none", db.DSN(pgtest.Login(t, db))} {
		for _, words := range [][]string{{"flag", "set", ""}, {"webhooks", ""}} {
			began := time.Now()
			out, errs := complete(where, words...)
			require.Equal(t, ":4\n", out, words)
			require.NotContains(t, errs, "qtop:", words)
			require.Less(t, time.Since(began), 10*time.Second)
		}
	}
}
