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

// Each verb that --help lists has a man page with its flags, with the date of
// SOURCE_DATE_EPOCH.
func TestManPages(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	cmd := program(t, filepath.Join(built, "qtop"), "", "man", folder)
	cmd.Env = append(cmd.Env, "SOURCE_DATE_EPOCH=1701385200", "TZ=Pacific/Auckland")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	pages := 0
	var look func(*cobra.Command)
	look = func(c *cobra.Command) {
		text, err := os.ReadFile(filepath.Join(folder, strings.ReplaceAll(c.CommandPath(), " ", "-")+".1"))
		require.NoError(t, err)
		page := strings.ReplaceAll(string(text), `\-`, "-")
		require.Contains(t, page, `"Nov 2023" "qtop `+release+`"`)
		require.Contains(t, page, c.Short)
		c.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
			if !f.Hidden {
				require.Contains(t, page, "--"+f.Name, c.CommandPath())
			}
		})
		pages++
		for _, sub := range c.Commands() {
			if sub.IsAvailableCommand() {
				look(sub)
			}
		}
	}
	look(commandLine(&app{}))
	require.Greater(t, pages, 80)

	cmd = program(t, filepath.Join(built, "qtop"), "", "man", folder)
	cmd.Env = append(cmd.Env, "SOURCE_DATE_EPOCH=yesterday")
	out, err = cmd.CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "SOURCE_DATE_EPOCH is no number of seconds")
}
