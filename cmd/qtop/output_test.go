package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/queue"
)

// No cell of a table reaches the terminal raw, whatever its text is from: the remedy of a finding of the
// doctor has the names of roles.
func TestTableCellsAreClean(t *testing.T) {
	t.Parallel()
	remedy := "REVOKE " + quoted("router_worker") + " FROM " + quoted("eve\x1b]52;c;cm0gLXJm\x07", "\u202emaeda", "a\nb")
	for _, output := range []string{"table", "json"} {
		var out strings.Builder
		a := &writer{out: &out, output: output}
		a.print([]finding{{"note", "members", queue.Clean("eve"), remedy}}, []string{"STATE", remedyHead}, [][]string{{"note", remedy}})
		require.NotRegexp(t, "[\\x00-\\x09\\x0b-\\x1f\\x7f-\\x9f\u202e]", out.String())
		require.Equal(t, map[string]int{"table": 2, "json": 1}[output], strings.Count(out.String(), "\n"))
	}
}

// The reason why one row is refused is printed once. A tick that ran and failed is no refusal, and is
// shown as one.
func TestOneRefusedRowIsPrintedOnce(t *testing.T) {
	t.Parallel()
	for outcome, want := range map[string]string{
		"refused": "|qtop: refused: its flag is off (reaper)\n",
		"failed":  "reaper failed: its flag is off\n|qtop: refused: reaper: its flag is off (reaper)\n",
	} {
		var out, errs strings.Builder
		a := &app{writer: writer{out: &out, errs: &errs, output: "table"}}
		err := a.outcome(queue.Result{
			Refused: "reaper: its flag is off",
			Results: []queue.Outcome{{ID: "reaper", Outcome: outcome, Why: queue.Clean("its flag is off")}},
		}, queue.Plan{Request: queue.Request{Targets: []string{"reaper"}}})
		require.Error(t, err)
		require.Equal(t, want, out.String()+"|"+errs.String())
	}
}
