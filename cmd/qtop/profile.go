package main

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/qtop/qtop/config"
	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/pgclient/queue/secrecy"
)

// profileRow is a profile as `qtop profile list` shows it.
type profileRow struct {
	config.Profile
	InUse bool `json:"in_use"`
}

// profileCmd returns the verbs about the profiles of the configuration file.
// They also work if the file has mistakes, because they may be needed to
// correct them.
func profileCmd(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "profile", Short: "List the profiles of the configuration file, add one, choose one"}
	verb := func(c cobra.Command, settings string, args cobra.PositionalArgs, run func(name string) error) {
		c.Args, c.Annotations = args, map[string]string{"config": "shown", settingsKey: settings}
		c.RunE = func(_ *cobra.Command, args []string) error { return run(strings.Join(args, "")) }
		cmd.AddCommand(&c)
	}
	verb(cobra.Command{Use: "list", Example: "qtop profile list", Short: "Print the profiles with their settings, passwords masked, and which is in use"},
		"caller", cobra.NoArgs, func(string) error { return a.listProfiles() })
	verb(cobra.Command{Use: "add NAME", Example: "qtop profile add prod --dsn postgres://anna@db.example/app",
		Short: "Write a new profile with the settings of the flags into the configuration file",
		Long: "Write a new profile with the settings of the flags into the configuration file, which is made where there is none. All other\n" +
			"lines stay as they are. A profile that exists is left alone. No flag takes a password: use ~/.pgpass or PGPASSWORD."},
		allSettings(), cobra.ExactArgs(1), a.addProfile)
	verb(cobra.Command{Use: "use NAME", Example: "qtop profile use prod",
		Short: "Use this profile where neither --profile nor QTOP_PROFILE names one", ValidArgsFunction: a.completeProfiles},
		"", cobra.ExactArgs(1), a.useProfile)
	return cmd
}

// completeProfiles completes the name of a profile.
func (a *app) completeProfiles(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	var out []cobra.Completion
	if _ = a.load(cmd); len(args) == 0 { // a file with mistakes has profiles too
		for _, p := range a.settings.Profiles() {
			out = append(out, p.Name)
		}
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}

// inUse returns the profile in use and its source: "flag --profile", "env
// QTOP_PROFILE", the file, or "default".
func (a *app) inUse() (name, from string) {
	for _, o := range a.settings.Origins() {
		if o.Key == "profile" {
			return a.settings.Profile, secrecy.Mask(o.From)
		}
	}
	return "", ""
}

// profiles returns the profiles of the configuration file, with secrets masked.
func (a *app) profiles() []profileRow {
	name, _ := a.inUse()
	rows := []profileRow{}
	for _, p := range a.settings.Profiles() {
		for i := range p.Settings {
			p.Settings[i].Value = secrecy.Mask(p.Settings[i].Value)
		}
		rows = append(rows, profileRow{p, p.Name == name})
	}
	return rows
}

func (a *app) listProfiles() error {
	wrong := a.reread() // returned at the end, after the readable profiles
	name, from := a.inUse()
	file, rows := config.File(config.System(nil)), a.profiles()
	if a.asJSON(map[string]any{"file": file, "profile": name, "from": from, "profiles": rows}) {
		return wrong
	}
	var cells [][]string
	for _, row := range rows {
		var settings []string
		for _, o := range row.Settings {
			settings = append(settings, o.Key+"="+o.Value)
		}
		cells = append(cells, []string{
			queue.Clean(row.Name).String(), queue.Choose(row.InUse, "yes", ""), strconv.Itoa(row.Line), queue.Clean(strings.Join(settings, " ")).String(),
		})
	}
	a.print(nil, []string{"PROFILE", "IN USE", "LINE", "SETTINGS"}, cells)
	a.say("file: " + cmp.Or(file, "none"))
	if name == "" {
		a.say("no profile is in use: the settings are those of the top of the file")
	} else {
		a.say(fmt.Sprintf("%s is in use (%s)", name, from))
	}
	return wrong
}

func (a *app) addProfile(name string) error {
	path, err := config.AddProfile(a.sources(), name)
	if err != nil {
		return err
	}
	_ = a.reread() // mistakes elsewhere in the file are no errors of this verb
	for _, row := range a.profiles() {
		if row.Name == name && a.asJSON(map[string]any{"file": path, "profile": name, "line": row.Line, "settings": row.Settings}) {
			return nil
		}
	}
	a.say("wrote profile " + name + " to " + path)
	a.say("use it with --profile, or always: qtop profile use " + queue.ShellQuote(name))
	return nil
}

func (a *app) useProfile(name string) error {
	path, err := config.UseProfile(a.sources(), name)
	if err != nil {
		return err
	}
	wrong := a.reread()
	now, from := a.inUse()
	if a.asJSON(map[string]any{"file": path, "profile": name, "in_use": now == name, "from": from}) {
		return wrong
	}
	a.say("profile " + name + " is used from now on (" + path + ")")
	if now != name {
		a.say("but not here: " + from + " names " + now)
	}
	return wrong
}
