package main

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// manCmd writes a man page per verb, from the declarations that --help shows.
// The packages install these pages.
func manCmd(*app) *cobra.Command {
	return &cobra.Command{
		Use: "man FOLDER", Short: "Write a man page per verb into a folder", Args: cobra.ExactArgs(1), Hidden: true,
		Example: "qtop man share/man/man1", Annotations: map[string]string{"config": "shown"},
		RunE: func(cmd *cobra.Command, args []string) error {
			date, err := sourceDate()
			if err != nil {
				return err
			}
			root := cmd.Root()
			root.DisableAutoGenTag = true
			return manTree(root, root, date, filepath.Clean(args[0]))
		},
	}
}

// manTree writes the pages of a verb and of the verbs below it. Each page has the settings that
// --help of its verb shows.
func manTree(root, cmd *cobra.Command, date time.Time, folder string) error {
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() && !c.IsAdditionalHelpTopicCommand() {
			if err := manTree(root, c, date, folder); err != nil {
				return err
			}
		}
	}
	showSettings(root, cmd)
	f, err := os.Create(filepath.Join(folder, strings.ReplaceAll(cmd.CommandPath(), " ", "-")+".1"))
	if err != nil {
		return err
	}
	header := &doc.GenManHeader{Section: "1", Date: &date, Source: "qtop " + release, Manual: "qtop"}
	return errors.Join(doc.GenMan(cmd, header, f), f.Close())
}

// sourceDate is the time SOURCE_DATE_EPOCH (https://reproducible-builds.org), else now.
func sourceDate() (time.Time, error) {
	epoch := os.Getenv("SOURCE_DATE_EPOCH")
	if epoch == "" {
		return time.Now().UTC(), nil
	}
	seconds, err := strconv.ParseInt(epoch, 10, 64)
	if err != nil {
		return time.Time{}, usage("SOURCE_DATE_EPOCH is no number of seconds", "environment", "unset it, or give it the time of the commit: git log -1 --format=%ct")
	}
	return time.Unix(seconds, 0).UTC(), nil
}
