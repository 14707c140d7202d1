package main

// The verbs version, config and keys.

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/qtop/qtop/config"
	"github.com/qtop/qtop/pgclient/pgpool"
	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/pgclient/queue/secrecy"
	"github.com/qtop/qtop/pgclient/schema"
)

func versionCmd(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "version", Example: "qtop version", Annotations: map[string]string{settingsKey: "connection listen caller"}, Short: "Print the version, the schema that it carries, and the one of the database, if that answers", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), 5*time.Second)
			defer cancel()
			st, err := a.standing(ctx, func(schema.Place) {})
			carried := schema.Current()
			if a.output == "json" {
				out := map[string]any{
					"version": release, "commit": commit(), "go": runtime.Version(), "os": runtime.GOOS, "arch": runtime.GOARCH,
					"schema": carried.Version(), "code": carried.Code, "hash": carried.Hash,
				}
				if err == nil {
					out["database"] = st
				}
				a.encode(a.out, out)
				return nil
			}
			fmt.Fprintln(a.out, versionLine())
			a.say(fmt.Sprintf("schema %d, code %d (%s)", carried.Version(), carried.Code, carried.Hash))
			switch {
			case err != nil:
				a.say("database: not reached: " + err.Error())
			case st.Current == 0:
				a.say("database: qtop is not installed")
			default:
				a.say(fmt.Sprintf("database: schema %d, code %d (%s), %s", st.Current, st.InstalledCode, st.InstalledHash, queue.Plural(len(st.Differs), "object differs", "objects differ")))
				for _, line := range st.lines()[2:] {
					a.say(line)
				}
			}
			return nil
		},
	}
}

func configCmd(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "config", Annotations: map[string]string{settingsKey: allSettings()}, Short: "Show or check the configuration"}
	var origin bool
	show := &cobra.Command{
		Use: "show", Example: "qtop config show --origin", Short: "Print every setting, passwords masked", Args: cobra.NoArgs, Annotations: map[string]string{"config": "shown", settingsKey: allSettings()},
		RunE: func(*cobra.Command, []string) error {
			wrong := a.reread() // the settings that can be read are shown nevertheless
			a.showConfig(origin)
			return wrong
		},
	}
	show.Flags().BoolVar(&origin, "origin", false, "say where each value comes from")
	cmd.AddCommand(show, &cobra.Command{
		Use: "check", Example: "qtop config check", Short: "Read every source and file that the settings name, as the user who runs this; exit 78 and list the problems when there are any", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if err := a.wrong(); err != nil {
				return err
			}
			warnings := []queue.Text{}
			for _, f := range append(a.files, hostFiles(a.settings)...) {
				warnings = append(warnings, queue.Clean(secrecy.Mask(f.problem().Error())))
			}
			warnings = append(warnings, unreadableSecrets(a.settings)...)
			if id := a.settings.HostID; !newHostID.MatchString(id) {
				warnings = append(warnings, queue.Clean(config.Problem{
					What:  fmt.Sprintf("host_id %q has characters that the id of a new host may not have: qtop worker ends unless an older release registered it", id),
					Where: "host_id", Do: "choose an id of letters, digits and . _ : @ / -, which begins with a letter or digit"}.Error()))
			}
			for _, p := range a.settings.Warnings() {
				warnings = append(warnings, queue.Clean(p.Error()))
			}
			if a.asJSON(map[string]any{"ok": true, "warnings": warnings}) {
				return nil
			}
			for _, w := range warnings {
				a.say("warning: " + w.String())
			}
			fmt.Fprintln(a.out, "the configuration is fine")
			return nil
		},
	})
	return cmd
}

// newHostID is the form of a host id that the database takes from a new host (fn_id_check).
var newHostID = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:@/-]*$`)

// wrong lists everything in the settings that a worker host refuses when it starts, or that refuses a
// connection; nil: there is nothing.
func (a *app) wrong() error {
	files := hostFiles(a.settings)
	_, hostErr := a.hostOptions(nil, nil, nil)
	errs := []error{refused(files), hostErr}
	for _, dsn := range slices.Compact([]string{a.settings.DSN, cmp.Or(a.settings.ListenDSN, a.settings.DSN)}) {
		_, err := pgpool.ParseDSN(dsn)
		errs = append(errs, err)
	}
	all, wrong := config.AsProblems(problems(errs...))
	if !wrong {
		return nil
	}
	return slices.DeleteFunc(all, func(p config.Problem) bool { // a handler refuses a file that is in the list already
		return slices.ContainsFunc(files, func(f fileFinding) bool { return strings.HasSuffix(p.What, `": `+f.What) })
	})
}

// showConfig prints every setting.
func (a *app) showConfig(origin bool) {
	var rows [][]string
	heads := []string{"KEY", "VALUE"}
	if origin {
		heads = append(heads, "FROM")
	}
	all := a.settings.Origins()
	for i, o := range all {
		all[i].Value, all[i].From = secrecy.Mask(o.Value), secrecy.Mask(o.From)
		row := []string{o.Key, queue.Clean(all[i].Value).String()}
		if origin {
			row = append(row, queue.Clean(all[i].From).String())
		}
		rows = append(rows, row)
	}
	a.print(all, heads, rows)
}

// keysCmd prints docs/keys.md, with --settings docs/configuration.md, or with
// --rights docs/rights.md. With --check it fails if that file differs.
func keysCmd(a *app) *cobra.Command {
	var check, settings, rights string
	cmd := &cobra.Command{
		Use: "keys", Example: "qtop keys", Short: "Print the key bindings, the settings or the rights, as Markdown", Args: cobra.NoArgs, Hidden: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			text := keysMarkdown()
			if schema := cmp.Or(settings, rights); schema != "" {
				tables, err := os.ReadFile(schema)
				if err != nil {
					return err
				}
				if settings != "" {
					text, err = settingsMarkdown(string(tables))
				} else {
					text, err = rightsMarkdown(cmd.Root(), string(tables))
				}
				if err != nil {
					return err
				}
			}
			if check == "" {
				_, err := fmt.Fprint(a.out, text)
				return err
			}
			have, err := os.ReadFile(check)
			if err != nil {
				return err
			}
			if string(have) != text {
				return usage(check+" is stale", "docs", "run make docs")
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&check, "check", "", "compare with this file")
	cmd.Flags().StringVar(&settings, "settings", "", "print the settings, and the flags that this docs/schema.md lists")
	cmd.Flags().StringVar(&rights, "rights", "", "print the roles that each verb needs, by the grants that this docs/schema.md lists")
	return cmd
}
