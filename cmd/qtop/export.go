package main

// `qtop export`: writes a whole list to a file.

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/qtop/qtop/pgclient"
	"github.com/qtop/qtop/pgclient/filtersql"
	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
)

// mostExported is the largest limit of an export.
const mostExported = 1_000_000_000

type exportOptions struct {
	filter, id string
	limit      int64
	force      bool
}

func exportCmd(a *app) *cobra.Command {
	var o exportOptions
	var names, help []string
	for _, l := range queue.ExportLists() {
		names = append(names, l.Name)
		of := queue.Choose(l.Of != "", "; --id names the "+l.Of, "")
		help = append(help, fmt.Sprintf("  %-22s %s%s [%s]", l.Name, l.Help, of, l.Order))
	}
	cmd := &cobra.Command{
		Use: "export LIST [FILE]", Example: "qtop export dlq dead.csv --filter 'code:HTTP_503'", Short: "Write a list out whole, as CSV, JSON or JSON lines",
		Long: "Write every row of a list that matches, to FILE or to standard output; how many they are, and as of when, goes to standard error.\n" +
			"The format is that of the file's name, .csv, .json or .jsonl, unless --output csv, json or jsonl says it; csv without a file. Rows and\n" +
			"columns are those that the verbs print with --output json, masked alike. In CSV a text that a spreadsheet would take for a formula (= + - @) gets an apostrophe in front.\n\n" +
			"Lists, with the order of their rows in brackets:\n" + strings.Join(help, "\n"),
		Args: cobra.RangeArgs(1, 2),
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
			switch len(args) {
			case 0:
				return names, cobra.ShellCompDirectiveNoFileComp
			case 1:
				return nil, cobra.ShellCompDirectiveDefault // the names of files
			}
			return nil, cobra.ShellCompDirectiveNoFileComp
		},
		Annotations: map[string]string{"output": "csv jsonl"},
		RunE: func(cmd *cobra.Command, args []string) error {
			file := ""
			if len(args) == 2 && args[1] != "-" {
				file = args[1]
			}
			if file == "" && o.force {
				return usage("--force has no effect without a file", "--force", "leave it out; write "+cmd.UseLine())
			}
			format := queue.ExportFormat(a.output)
			if file != "" && !cmd.Flags().Changed("output") {
				var err error
				if format, err = queue.ExportFormatOf(file); err != nil {
					return err
				}
			}
			return a.export(cmd.Context(), args[0], file, format, o)
		},
	}
	cmd.Flags().StringVar(&o.filter, "filter", "", filterHelp)
	cmd.Flags().StringVar(&o.id, "id", "", "what the list is of, where it is not of everything")
	wholeFlag(cmd.Flags(), &o.limit, "limit", "rows at most; 0 is all")
	cmd.Flags().BoolVar(&o.force, "force", false, "replace FILE if it exists")
	return cmd
}

func (a *app) export(ctx context.Context, name, file string, format queue.ExportFormat, o exportOptions) error {
	list, err := queue.ExportListNamed(name)
	switch {
	case err != nil:
		return err
	case list.Plain && o.filter != "":
		return usage("the list "+list.Name+" takes no filter", "--filter", "leave it out")
	case list.Of == "" && o.id != "":
		return usage("the list "+list.Name+" takes no id: it is always exported whole", "--id", "leave it out")
	case list.Of != "" && !list.Optional && o.id == "":
		return usage("exporting "+list.Name+" needs the id of one "+list.Of, "--id", "give it with --id ID")
	case o.limit < 0 || o.limit > mostExported:
		return usage(fmt.Sprintf("--limit cannot be %d", o.limit), "--limit", fmt.Sprintf("use 1 to %d; 0 is all", mostExported))
	}
	client, err := a.reader(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	a.unsure.Store(queue.Choose(file == "", "the export is not whole", "no file was written"))
	x := queue.Export{List: list, Query: queue.Query{Filter: o.filter, ID: o.id}, Limit: o.limit, Format: format}
	var done queue.Exported
	lacks := ""
	write := func(w io.Writer) (err error) {
		if list.Kind == "" {
			if lacks, err = snapshotRows(ctx, client, &x); err != nil {
				return err
			}
		}
		done, err = x.Run(ctx, client, w, func(int64) {})
		return err
	}
	where := ""
	if file == "" {
		out := bufio.NewWriter(a.out)
		if err = write(out); err == nil {
			err = out.Flush()
		}
	} else {
		where, err = a.newFile(file, o.force, write)
		where = " → " + queue.Clean(where).String()
	}
	if err != nil {
		return err
	}
	a.unsure.Store("the export is whole")
	cut := queue.Choose(done.Cut && done.Rows == o.limit, ", cut by --limit", "")
	fmt.Fprintf(a.errs, "qtop: %s, %s%s%s\n", list.Name, done, cut, where)
	if lacks != "" {
		a.warning(queue.Error{What: queue.Clean("the export lacks " + lacks)})
	}
	return nil
}

// snapshotRows sets the rows of an export of a list that is part of the snapshot; lacks says what the
// snapshot lacks of it, "" = nothing.
func snapshotRows(ctx context.Context, c *pgclient.Client, x *queue.Export) (lacks string, err error) {
	list := x.List
	s, err := snapshot(ctx, c)
	if err != nil {
		return "", err
	}
	if list.Name == "dlq-groups" {
		if err := c.EveryDeadGroup(ctx, &s); err != nil {
			return "", err
		}
	}
	src := views.SnapshotTable(list.Name, &s)
	f, err := queue.ParseFilter(x.Query.Filter, src.Fields)
	if err != nil {
		return "", filtersql.Error(err)
	}
	order := views.Arrange(src, 0, func(i int) bool {
		return f.Empty() || f.Match(func(name string) (any, bool) { return src.Field(i, name) }, s.TakenAt)
	})
	x.Rows, x.AsOf = src.Exported(list.Name, order), s.TakenAt
	if list.Name == "job-leases" {
		var n int64
		if x.More, n = s.MoreLeases(); x.More && f.Empty() {
			x.Total = n
		}
	}
	return src.Note, nil
}
