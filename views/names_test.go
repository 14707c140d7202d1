package views_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
	"github.com/qtop/qtop/views/theme"
	"github.com/qtop/qtop/views/viewstest"
)

// internalNames returns the names that people must not see on the screen:
// those of tables, views, functions and columns that are not English words,
// and the sources of v_queue_health.
func internalNames(t *testing.T) map[string]bool {
	t.Helper()
	read := func(path string) string {
		b, err := os.ReadFile(path)
		require.NoError(t, err)
		return string(b)
	}
	names := map[string]bool{}
	add := func(name string) {
		if strings.Contains(name, "_") {
			names[name] = true
		}
	}
	for line := range strings.Lines(read("../pgclient/schema/tables.txt")) {
		if kind, rest, ok := strings.Cut(line, "\t"); ok && (kind == "table" || kind == "column") {
			table, column, _ := strings.Cut(strings.Fields(rest)[0], ".")
			add(table)
			add(column)
		}
	}
	for _, m := range regexp.MustCompile(`(?m)^(?:function|view) public\.(\w+)`).FindAllStringSubmatch(read("../pgclient/schema/objects.txt"), -1) {
		add(m[1])
	}
	sources := regexp.MustCompile(`COMMENT ON COLUMN public\.v_queue_health\.source IS\s+('[^;]*);`).FindStringSubmatch(read("../pgclient/schema/code/health.sql"))
	require.NotEmpty(t, sources)
	for _, name := range regexp.MustCompile(`\w+`).FindAllString(sources[1], -1) {
		add(name)
	}
	require.Greater(t, len(names), 500)
	require.Subset(t, names, map[string]bool{"dead_letter_webhook": true, "v_queue_health": true, "fn_queue_why": true, "queue_heartbeat": true})
	return names
}

// No pane and no page shows a name of the schema. Exempt are messages of the database, values that
// are stored as JSON, the statements of sessions, and the functions that a producer calls.
func TestNoInternalNames(t *testing.T) {
	t.Parallel()
	names := internalNames(t)
	theirs := regexp.MustCompile(`"\w+": ?|\{"|relation "|for table |actor_ref is missing`)
	producers := map[string]bool{"fn_job_enqueue": true, "fn_iu_save": true, "job_executor": true} // the last one is also the name of a loop
	e := env(theme.Options{Depth: theme.Mono})
	// Not a regular expression: under the race detector one takes half a minute for these screens.
	gap := func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("_.:/-", r)
	}
	for world, w := range worlds() {
		for name, body := range bodies(w) {
			if name == "activity" || name == "page-session" {
				continue // the statements and locks of sessions contain such names
			}
			for _, size := range []views.Size{{W: 300, H: 400}} {
				for line := range strings.Lines(screen(w, name, body, e, size)) {
					for word := range strings.FieldsFuncSeq(line, gap) {
						if names[word] && !producers[word] && !theirs.MatchString(line) {
							require.Failf(t, "an internal name", "%s of %s names %s: %s", name, world, word, line)
						}
					}
				}
			}
		}
	}
	for source := range names {
		if strings.HasPrefix(source, "dead_letter_") || strings.HasPrefix(source, "backlog_") || source == "cursor_held" {
			require.NotContains(t, views.HealthSource(source), "_")
		}
	}
	require.Equal(t, "flag set", queue.AuditWords("flag_set"))
	require.Equal(t, "job dead letter requeue", queue.AuditWords("job_dead_letter_replay"), "as of webhooks")
	require.Equal(t, "webhook dead letters", views.HealthSource(viewstest.Rich().Health[3].Source.String()))
}
