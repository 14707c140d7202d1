package main

import (
	"cmp"
	"context"

	"github.com/spf13/cobra"

	"github.com/qtop/qtop/pgclient"
	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
)

// executorCmd returns the verbs about executors that are not actions.
func executorCmd(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "executor", Short: "Register, deregister or beat an executor; say what it may claim"}
	cmd.AddCommand(a.viewCmd(view{use: "subscriptions [ID]", of: "executor", example: "qtop executor subscriptions reindex_1", short: "What executors may claim", show: showJobSubscriptions}, &viewOptions{}), heartbeatCmd(a),
		a.viewCmd(view{use: "producers", example: "qtop executor producers", short: "Which roles may enqueue for each executor kind", show: listed(queue.ListProducers, "producers", of(views.Producers))}, &viewOptions{}))
	return cmd
}

// maxBeat is the most bytes of a heartbeat's payload: see fn_queue_heartbeat_write.
const maxBeat = 8000

func heartbeatCmd(a *app) *cobra.Command {
	var payload string
	cmd := &cobra.Command{
		Use: "beat ID", Example: "qtop executor beat reindex_1", Short: "Write one heartbeat of a registered executor", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			text, where, err := a.payloadOf(cmd.Context(), payload, maxBeat, "give state, done_total, in_flight and last_work_at alone")
			if err == nil {
				err = cmp.Or(queue.CheckUTF8("ID", args[0]), queue.CheckHeartbeat(where, text))
			}
			if err != nil {
				return err
			}
			return a.connected(0, func(ctx context.Context, client *pgclient.Client, args []string) error {
				a.unsure.Store("qtop does not know whether the heartbeat was written")
				at, refused, err := client.Heartbeat(ctx, args[0], text)
				if err != nil {
					return err
				}
				if near := client.Nearest(ctx, "executor", args[0]); refused != "" && near != "" && near != args[0] {
					refused += "; did you mean " + near + "?"
				}
				return a.outcome(queue.Result{
					Action: "executor_beat", Refused: refused,
					Results: []queue.Outcome{{ID: args[0], Outcome: queue.Choose(refused != "", "refused", "beaten"), Why: queue.Clean(at)}},
				}, queue.Plan{})
			})(cmd, args)
		},
	}
	cmd.ValidArgsFunction = a.completeIDs("executor", 1)
	cmd.Flags().StringVar(&payload, "payload", "{}", "JSON object with state (working, idle, stopped), done_total, in_flight, last_work_at; - reads standard input")
	return cmd
}
