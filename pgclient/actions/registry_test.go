package actions

import (
	"regexp"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/queue"
)

func TestActionRegistryIsSound(t *testing.T) {
	function := regexp.MustCompile(`^public\.fn_[a-z_]+\([a-z\[\], ]*\)$`)
	ids := map[queue.ActionID]bool{}
	for _, a := range Registry() {
		require.NotEmpty(t, a.ID)
		require.False(t, ids[a.ID], "%s is there twice", a.ID)
		ids[a.ID] = true
		require.NotEmpty(t, a.Verb, a.ID)
		require.NotEmpty(t, a.Help, a.ID)
		require.NotEmpty(t, a.Words, a.ID)
		if a.Key != "" {
			if a.ID != queue.ActBulkRate { // + and - change the rate of the selected operation
				require.Regexp(t, `^[A-Z]$`, a.Key, "%s: capitals act", a.ID)
			}
			require.NotEmpty(t, a.Panes, "%s: a key without a pane", a.ID)
		}
		if a.Danger == queue.DangerLocal {
			require.Equal(t, a.Function == "", a.Role == "", "%s: the right to take up work", a.ID)
		} else {
			require.Regexp(t, function, a.Function, a.ID)
			require.NotEmpty(t, a.Role, a.ID)
			require.Regexp(t, `^qtop `, a.Headless(), a.ID)
		}
		args := map[string]bool{}
		for _, arg := range a.Args {
			require.Regexp(t, `^[a-z][a-z-]*$`, arg.Name, a.ID)
			require.NotEmpty(t, arg.Label, "%s %s", a.ID, arg.Name)
			require.False(t, args[arg.Name], "%s: %s is there twice", a.ID, arg.Name)
			args[arg.Name] = true
			if arg.Default != "" {
				require.NoError(t, arg.Check(arg.Default), "%s %s", a.ID, arg.Name)
			}
		}
		require.Equal(t, a, Registry().ByID(a.ID))
		if a.Opposite != "" {
			require.NotEmpty(t, Registry().ByID(a.Opposite).Words, a.ID)
		}
	}
	require.Empty(t, Registry().ByID("no_such_action").ID)
}

// A key has one meaning in a pane. Two opposite actions may share a key: acknowledge and give up,
// pause and resume (an operation, a tick worker), suspend and resume, mute and unmute, disable and
// enable; the state of the row decides which of the two it is. Elsewhere a key has the same meaning
// in every pane: C closes, E edits, N makes, P pauses, S starts, U undoes and X ends.
func TestActionKeysMeanOneThing(t *testing.T) {
	type place struct {
		pane queue.PaneID
		key  string
	}
	taken := map[place][]queue.ActionID{}
	everywhere := map[string][]queue.ActionID{}
	for _, a := range Registry() {
		if a.Key == "" {
			continue
		}
		everywhere[a.Key] = append(everywhere[a.Key], a.ID)
		for _, p := range a.Panes {
			taken[place{p, a.Key}] = append(taken[place{p, a.Key}], a.ID)
		}
	}
	for at, ids := range taken {
		if len(ids) > 1 {
			require.Len(t, ids, 2, "%s in pane %s", at.key, at.pane)
			require.Equal(t, ids[1], Registry().ByID(ids[0]).Opposite, "%s in pane %s: two halves of one key", at.key, at.pane)
			require.Equal(t, ids[0], Registry().ByID(ids[1]).Opposite, "%s in pane %s: two halves of one key", at.key, at.pane)
		}
	}
	for key, ids := range everywhere {
		if len(ids) > 1 {
			slices.Sort(ids)
			same := [][]queue.ActionID{
				{queue.ActAck, queue.ActUnack}, {queue.ActResume, queue.ActSuspend, queue.ActEventSubscriptionMute, queue.ActEventSubscriptionUnmute, queue.ActJobSubscriptionOff, queue.ActJobSubscriptionOn}, {queue.ActJobCancel, queue.ActResolve, queue.ActSessionCancel}, {queue.ActEventTypeSet, queue.ActFlagSet, queue.ActJobSubscribe, queue.ActWebhookRotate},
				{queue.ActBulkPlan, queue.ActEventSubscriptionAdd, queue.ActExecRegister, queue.ActWebhookAdd},
				{queue.ActBulkPause, queue.ActBulkResume, queue.ActHostDrain, queue.ActTickPause, queue.ActTickResume}, {queue.ActBulkRun, queue.ActHostStart}, {queue.ActBulkUndo, queue.ActUndoRequeue}, {queue.ActNotifyRequeue, queue.ActQuarantineRetry, queue.ActRequeue}, {queue.ActBulkAbort, queue.ActHostStop, queue.ActSessionTerminate},
			}
			require.Contains(t, same, ids, "%s means one thing everywhere: choose another key, or add the action to the list of that key in same", key)
		}
	}
}

// Of all actions only a recount may take longer than the pool's time limit.
func TestTimeLimitOfActions(t *testing.T) {
	for _, e := range entries() {
		ctx, cancel := e.within(t.Context())
		_, limited := ctx.Deadline()
		require.Equal(t, e.ID != queue.ActRecount, limited, e.ID)
		cancel()
		require.Error(t, ctx.Err())
	}
}
