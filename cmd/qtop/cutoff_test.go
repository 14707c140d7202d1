//go:build !race

package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/pgtest"
)

// full is a writer like a full disk: it accepts as many bytes as left says,
// and then fails.
type full struct{ left int }

func (f *full) Write(p []byte) (int, error) {
	n := min(len(p), f.left)
	if f.left -= n; n < len(p) {
		return n, errors.New("no space left on device")
	}
	return n, nil
}

// A verb that cannot write its answer reports that in one line, and its exit
// code is not 0. Tested with all verbs that need no arguments, as a table and
// as JSON, and with every help.
func TestAnswerCutOff(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	try := func(args []string, out io.Writer) (int, string) {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		var errs bytes.Buffer
		code := run(ctx, args, strings.NewReader(""), out, &errs)
		require.NoError(t, ctx.Err(), "%v does not end by itself", args)
		return code, errs.String()
	}
	tried := 0
	for i, verb := range leaves(commandLine(&app{}), nil) {
		if verb[0] == "worker" { // it runs until it is stopped
			continue
		}
		verb = slices.DeleteFunc(verb, func(word string) bool { return word == "1" || strings.HasPrefix(word, "--") })
		ways := [][]string{{"--help"}, {"--dsn", db.DSN("")}, {"--dsn", db.DSN(""), "--output", "json"}}
		if !slices.Contains([]string{"version", "status", "doctor", "migrate", "flags"}, verb[0]) && os.Getenv("QTOP_TEST_FULL") == "" {
			ways = ways[:1] // the full run tests every verb with an answer of the database
			if i%3 > 0 {
				continue
			}
		}
		for _, flags := range ways {
			args := append(append([]string{}, verb...), flags...)
			var whole bytes.Buffer
			code, _ := try(args, &whole)
			if whole.Len() == 0 {
				require.NotZero(t, code, "%v answers nothing", args)
				continue // the verb needs more arguments
			}
			room := whole.Len() / 2
			if verb[0] == "activity" { // other sessions come and go, so that the next answer may be short
				room = 1
			}
			tried++
			cut, errs := try(args, &full{room})
			require.NotZero(t, cut, args)
			require.Contains(t, errs, "no space left on device", args)
			require.Equal(t, 1, strings.Count(errs, "no space left on device"), "%v: %s", args, errs)
		}
	}
	require.Greater(t, tried, 40)

	for _, args := range [][]string{
		{"completion", "bash"}, {"export", "flags", "--dsn", db.DSN("")}, {"export", "flags", "--output", "jsonl", "--dsn", db.DSN("")},
		{"report", "--since", "1h", "--dsn", db.DSN("")},
		{"status", "--watch", "--dsn", db.DSN("")}, // it would repeat for ever if the failed write did not end it
	} {
		cut, errs := try(args, &full{20})
		require.Equal(t, 1, cut, args)
		require.Equal(t, 1, strings.Count(errs, "no space left on device"), "%v: %s", args, errs)
	}
}
