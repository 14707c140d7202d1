package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
)

// Each verb that --help lists has a man page with the flags that its --help has, those of settings
// too, and with the date of SOURCE_DATE_EPOCH.
func TestManPages(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	cmd := program(t, filepath.Join(built, "qtop"), "", "man", folder)
	cmd.Env = append(cmd.Env, "SOURCE_DATE_EPOCH=1701385200", "TZ=Pacific/Auckland")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	pages, root := 0, commandLine(&app{})
	var look func(*cobra.Command)
	look = func(c *cobra.Command) {
		text, err := os.ReadFile(filepath.Join(folder, strings.ReplaceAll(c.CommandPath(), " ", "-")+".1"))
		require.NoError(t, err)
		page := strings.ReplaceAll(string(text), `\-`, "-")
		require.Contains(t, page, `"Nov 2023" "qtop `+release+`"`)
		require.Contains(t, page, c.Short)
		showSettings(root, c)
		c.InheritedFlags() // which adds them to Flags
		c.Flags().VisitAll(func(f *pflag.Flag) {
			require.Equal(t, !f.Hidden, strings.Contains(page, "--"+f.Name+`\fP`), "%s: --%s", c.CommandPath(), f.Name)
		})
		pages++
		for _, sub := range c.Commands() {
			if sub.IsAvailableCommand() {
				look(sub)
			}
		}
	}
	look(root)
	require.Greater(t, pages, 80)

	cmd = program(t, filepath.Join(built, "qtop"), "", "man", folder)
	cmd.Env = append(cmd.Env, "SOURCE_DATE_EPOCH=yesterday")
	out, err = cmd.CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "SOURCE_DATE_EPOCH is no number of seconds")
}
