package main

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/actions"
	"github.com/qtop/qtop/pgclient/queue"
)

// oddWords are texts that a shell or a command line might read as something else.
var oddWords = []string{
	"plain", "two words", "it's", `"double"`, "$HOME `id` $(id)", `back\slash`, "a;b|c&d>e<f", "*?[x]", "ünï ✓", "''", "~", "#x", "!x", "a=b", "{a,b}",
	"-x", "--yes", "--", " lead",
}

// sampleArgs returns values that the arguments of an action may have; word is
// the value of the texts.
func sampleArgs(a queue.Action, word string, empty bool) map[string]string {
	args := map[string]string{}
	for _, arg := range a.Args {
		v := word
		switch {
		case arg.Options() != nil && arg.Kind != queue.ArgText:
			v = arg.Options()[len(arg.Options())-1]
		case arg.Kind == queue.ArgChoice:
			v = arg.Choices[0]
		case arg.Kind == queue.ArgSwitch:
			v = "false"
		case arg.Kind == queue.ArgWord:
			v = "one-" + strings.NewReplacer(" ", "", ",", "").Replace(word)
		case arg.Kind == queue.ArgDuration:
			v = "45m"
		case arg.Kind == queue.ArgWhole || arg.Kind == queue.ArgNumber:
			v = "7"
		case arg.Kind == queue.ArgObject:
			v = `{"a": "it's $x"}`
		}
		if empty && !arg.Required {
			v = ""
		}
		if v != "" || arg.Clears || arg.Default != "" {
			args[arg.Name] = v
		}
	}
	return args
}

// A dialog shows the qtop command that does the same. Read by a shell and by
// the verb, that command gives the same request and confirmation, for every
// action and whatever text is in it.
func TestPrintedCommandIsTheRequest(t *testing.T) {
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("NOT CHECKED: there is no sh here to read the printed commands")
	}
	for _, entry := range actions.Registry() {
		if entry.Twin != "" {
			require.True(t, entry.Local() || entry.ID == queue.ActReveal, "%s has a verb of its own", entry.ID)
			continue
		}
		var all []queue.Request
		for _, word := range oddWords {
			for _, empty := range []bool{false, true} {
				r := queue.Request{Action: entry.ID, Args: sampleArgs(entry, word, empty), Targets: []string{}}
				if !empty { // in a guarded database, named like this
					r.Confirm = word
				}
				if entry.Reason {
					r.Reason = word
				}
				switch targets := entry.Targets; {
				case targets.Name == "":
				case targets.Many && targets.Instead != "" && empty && targets.Instead == "filter":
					r.Filter = word
				case targets.Many && targets.Instead == "all" && empty:
				case targets.Many:
					r.Targets = []string{word, "b"}
				default:
					r.Targets = []string{word}
				}
				all = append(all, r)
			}
		}
		var script strings.Builder
		for _, r := range all {
			script.WriteString("printf '%s\\0' " + entry.Command(r) + " && printf '\\1'\n")
		}
		out, err := exec.CommandContext(t.Context(), sh, "-c", script.String()).CombinedOutput()
		require.NoError(t, err, "%s", out)
		lines := strings.Split(strings.TrimSuffix(string(out), "\x01"), "\x01")
		require.Len(t, lines, len(all), entry.ID)
		for i, r := range all {
			words := strings.Split(strings.TrimSuffix(lines[i], "\x00"), "\x00")
			require.Equal(t, append([]string{"qtop"}, strings.Fields(entry.Words)...), words[:1+len(strings.Fields(entry.Words))])
			v := verbOf(&app{}, entry)
			var got queue.Request
			v.cmd.RunE = func(_ *cobra.Command, args []string) (err error) {
				got, err = v.request(args)
				return err
			}
			v.cmd.SetArgs(words[1+len(strings.Fields(entry.Words)):])
			require.NoError(t, v.cmd.Execute(), entry.Command(r))
			switch {
			case entry.Danger == queue.DangerDatabase: // its only target is the database, which is typed as confirmation
				r.Args["confirm"], r.Targets = r.Targets[0], []string{}
			case v.namesDatabase() && r.Confirm != "":
				r.Args["confirm"] = r.Confirm
			case entry.Guards():
				require.Equal(t, r.Confirm, v.o.confirm, entry.Command(r))
			}
			r.Confirm = ""
			require.Equal(t, entry.TakesReason(), !v.cmd.Flags().Lookup("reason").Hidden, "a reason that the audit does not have is not offered")
			if !entry.TakesReason() {
				r.Reason = ""
			}
			require.Equal(t, r, got, entry.Command(r))
		}
	}
}

// A verb refuses the same values as the form in the console, with the same
// message, before it connects.
func TestVerbRefusesWhatTheFormRefuses(t *testing.T) {
	bad := map[queue.ArgKind]string{
		queue.ArgDuration: "soon", queue.ArgWhole: "1.5", queue.ArgNumber: "x", queue.ArgChoice: "nonsense", queue.ArgSwitch: "maybe", queue.ArgObject: "[1]", queue.ArgWord: "a b",
	}
	for _, entry := range actions.Registry() {
		for _, arg := range entry.Args {
			if entry.Twin != "" || bad[arg.Kind] == "" {
				continue
			}
			v := verbOf(&app{}, entry)
			r := queue.Request{Args: map[string]string{arg.Name: bad[arg.Kind]}}
			require.Error(t, arg.Check(bad[arg.Kind]), "%s %s", entry.ID, arg.Name)
			words := []string{"x"}
			if entry.Targets.Name == "" || entry.Danger == queue.DangerDatabase {
				words = []string{}
			}
			if arg.Positional {
				words = append(words, r.Args[arg.Name])
			} else {
				if entry.Free().Name != "" {
					words = append(words, "y")
				}
				words = append(words, "--"+arg.Name+"="+r.Args[arg.Name])
			}
			v.cmd.SetArgs(words)
			v.cmd.SilenceErrors, v.cmd.SilenceUsage = true, true
			require.EqualError(t, v.cmd.Execute(), arg.Check(bad[arg.Kind]).Error(), "%s %s", entry.ID, arg.Name)
		}
	}
}

// A flag that selects jobs and has no value, such as "$KIND" of a script that did not set it, does not
// widen the selection: it is refused, before the verb connects.
func TestAnEmptySelectionIsRefused(t *testing.T) {
	for _, x := range []struct {
		args []string
		says string
	}{
		{[]string{"--status", "queued", "--filter", ""}, "--filter is empty"},
		{[]string{"--status", "queued", "--filter", "  "}, "--filter is empty"},
		{[]string{"--kind", "kg.reindex", "--filter", ""}, "--filter is empty"},
		{[]string{"--kind", "", "--domain", "kg"}, "--kind is empty"},
		{[]string{"--kind", "kg.reindex", "--domain", ""}, "--domain is empty"},
		{[]string{"--kind", "kg.reindex", "--status", ""}, "--status is empty"},
		{[]string{"--status", "queued"}, "--status alone would select jobs of every kind"},
	} {
		var out, errs strings.Builder
		args := append([]string{"job", "cancel", "--dsn", "postgres://nobody@127.0.0.1:1/none", "--reason", "r", "--yes"}, x.args...)
		require.Equal(t, 2, run(t.Context(), args, strings.NewReader(""), &out, &errs), x.args)
		require.Contains(t, errs.String(), x.says, x.args)
	}
}

// Every verb refuses an own flag or an argument that is given and empty, before it connects. Flags in
// which an empty value has a separate meaning are left to the verb. Whole numbers are decimal.
func TestValuesOfVerbs(t *testing.T) {
	const job = "job enqueue --kind k --domain d --executor Agent"
	leave := func(flag string) string {
		return "qtop: --" + flag + " is empty (command line): give it a value or leave it out\n"
	}
	for line, says := range map[string]string{
		job + " --key=":                        leave("key"),
		job + " --key= --scope ghost":          leave("key"),
		job + " --scope ghost":                 "qtop: --scope has no effect without --key (command line): add --key\n",
		"job enqueue --kind=":                  "qtop: --kind is needed (command line): see qtop job enqueue --help\n",
		"status --at=":                         leave("at"),
		"report --since 3h --until=":           leave("until"),
		"subscriptions --resolve=":             leave("resolve"),
		"queues --kind=":                       leave("kind"),
		"dlq --filter= ":                       leave("filter"),
		"--pane=":                              leave("pane"),
		"tick metrics_sampler --yes --reason=": leave("reason"),
		"requeue 1 --yes --reason r --rate=":   leave("rate"),
		"webhook add https://h/ --types a.b --secret= --reason r --yes": leave("secret"),
		"executor register x --owner-role r --domains= --yes":           leave("domains"),
		"dlq --limit 0100000":              "qtop: --limit cannot be 100000 (--limit)",
		"dlq --limit 0x10":                 "qtop: --limit cannot be \"0x10\" (command line): use a whole number\n",
		"ops show 1 --limit 0100000":       "qtop: --limit cannot be 100000 (--limit)",
		"export jobs --limit 012345670123": "qtop: --limit cannot be 12345670123 (--limit)",
		job + " --max-attempts 02000":      "qtop: --max-attempts cannot be 2000 (--max-attempts)",
		"export dlq _":                     "qtop: an argument is empty (command line): write qtop export LIST [FILE] [flags]\n",
		"flag set _ 1 --reason r":          "qtop: an argument is empty (command line): write qtop flag set KEY VALUE",
		"executor subscribe x --reason r --yes --notes=" + strings.Repeat("n", 2001):    "qtop: the notes must have at most 2000 characters, not 2001 (--notes): shorten it\n",
		"event-type set a/b --reason r --yes --description=" + strings.Repeat("d", 501): "qtop: the description must have at most 500 characters, not 501 (--description): shorten it\n",
		"ops rate 12 --rate 0x1p4 --yes":                                                "qtop: \"0x1p4\" is not a number from 0.01 to 1000 (--rate)",
		"scheduler pause w --for= --reason r --yes":                                     "no connection to PostgreSQL",
		"executor subscribe x --kind= --notes= --reason r --yes":                        "no connection to PostgreSQL",
	} {
		args := strings.Fields(line)
		for i, arg := range args {
			args[i] = strings.TrimPrefix(arg, "_")
		}
		var out, errs strings.Builder
		code := run(t.Context(), append(args, "--dsn", "postgres://nobody@127.0.0.1:1/none"), strings.NewReader(""), &out, &errs)
		require.Contains(t, errs.String(), says, line)
		require.NotZero(t, code, line)
	}
}
