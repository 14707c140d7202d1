package main

// `qtop doctor`: reports everything that is missing between this machine and a
// working queue; each finding is a line with its remedy.

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/qtop/qtop/pgclient"
	"github.com/qtop/qtop/pgclient/inspect"
	"github.com/qtop/qtop/pgclient/queue"
)

func doctorCmd(a *app) *cobra.Command {
	staged := false
	cmd := &cobra.Command{
		Use: "doctor", Example: "qtop doctor", Annotations: map[string]string{settingsKey: "connection listen caller host delivery"}, Short: "Check connection, TLS, pooler, standby, logins, schema, rights and clock", Args: cobra.NoArgs,
		RunE: a.connected(0, func(ctx context.Context, client *pgclient.Client, _ []string) error {
			if staged {
				return staging(ctx, a, client)
			}
			all := examine(ctx, a, client)
			if err := ctx.Err(); err != nil { // what the checks found then is the signal
				return err
			}
			var rows [][]string
			bad := false
			for _, f := range all {
				rows = append(rows, []string{f.State, f.Check, f.Found.String(), f.Remedy})
				bad = bad || f.State == "bad"
			}
			a.print(all, []string{"STATE", "CHECK", "FOUND", remedyHead}, rows)
			if bad {
				return &exitError{1}
			}
			return nil
		}),
	}
	cmd.Flags().BoolVar(&staged, "staging", false, "the verification lines of staged notifications, key=value, from the live catalogue")
	return cmd
}

// checks lists all checks of the doctor, in the order in which their findings
// are printed.
func checks() []check {
	return []check{
		elsewhereFindings, sessionFindings, environmentFinding, loginFindings, connectionFindings, schemaFindings, rowFinding, rightFindings, hostRightFindings, roleFindings, foreignFindings, signingFindings, fileFindings,
		clockFinding, diskFindings, hostFinding, sequenceFinding, idFinding, neverDueFinding, partitionFinding, driftFinding, sizeFinding,
	}
}

func examine(ctx context.Context, a *app, c *pgclient.Client) (all []finding) {
	s, err := c.Session(ctx)
	if err != nil {
		if q, ok := asQueueError(err); ok {
			return []finding{{"bad", "connection", queue.Said(&queue.Error{What: q.What, Where: q.Where}), q.Do.String()}}
		}
		return []finding{{"bad", "connection", queue.Said(err), ""}}
	}
	x := patient{client: c, session: s, settings: a.settings, files: a.files}
	if s.Misfit != nil { // no other check can read such a schema
		return append(sessionFindings(ctx, x), finding{"bad", "schema", s.Misfit.What, s.Misfit.Do.String()})
	}
	x.rolePrefix = inspect.RolePrefix(ctx, c)
	x.logins, x.noLogins = inspect.Logins(ctx, c)
	for _, look := range checks() {
		all = append(all, look(ctx, x)...)
	}
	return all
}
