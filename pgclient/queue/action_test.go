package queue

import (
	"regexp"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestActionRegistryIsSound(t *testing.T) {
	function := regexp.MustCompile(`^public\.fn_[a-z_]+\([a-z\[\], ]*\)$`)
	ids := map[ActionID]bool{}
	for _, a := range Actions() {
		require.NotEmpty(t, a.ID)
		require.False(t, ids[a.ID], "%s is there twice", a.ID)
		ids[a.ID] = true
		require.NotEmpty(t, a.Verb, a.ID)
		require.NotEmpty(t, a.Help, a.ID)
		require.NotEmpty(t, a.Twin, a.ID)
		if a.Key != "" {
			if a.ID != ActBulkRate { // + and - are the rate of the selected operation
				require.Regexp(t, `^[A-Z]$`, a.Key, "%s: capitals act", a.ID)
			}
			require.NotEmpty(t, a.Panes, "%s: a key without a pane", a.ID)
		}
		if a.Danger == DangerLocal {
			require.Empty(t, a.Function, "%s: concerns this process only", a.ID)
			require.Empty(t, a.Role, a.ID)
		} else {
			require.Regexp(t, function, a.Function, a.ID)
			require.NotEmpty(t, a.Role, a.ID)
			require.Regexp(t, `^qtop `, a.Twin, a.ID)
		}
		args := map[string]bool{}
		for _, arg := range a.Args {
			require.Regexp(t, `^[a-z][a-z-]*$`, arg.Name, a.ID)
			require.NotEmpty(t, arg.Label, "%s %s", a.ID, arg.Name)
			require.False(t, args[arg.Name], "%s: %s is there twice", a.ID, arg.Name)
			args[arg.Name] = true
			if arg.Default != "" && arg.Choices != nil {
				require.Contains(t, arg.Choices, arg.Default, "%s %s", a.ID, arg.Name)
			}
		}
		found, ok := ActionByID(a.ID)
		require.True(t, ok)
		require.Equal(t, a, found)
	}
	_, ok := ActionByID("no_such_action")
	require.False(t, ok)
}

// A key means one thing in a pane. Acknowledging and giving up, pausing and
// resuming (an operation, a tick worker), suspending and resuming,
// muting and unmuting, disabling and enabling are the two halves of one key: which of them
// it is depends on the row.
// Elsewhere C closes, E edits, N makes, P pauses, S starts, U undoes and X ends,
// whatever the pane is about.
func TestActionKeysMeanOneThing(t *testing.T) {
	type place struct {
		pane PaneID
		key  string
	}
	taken := map[place][]ActionID{}
	everywhere := map[string][]ActionID{}
	for _, a := range Actions() {
		if a.Key == "" {
			continue
		}
		everywhere[a.Key] = append(everywhere[a.Key], a.ID)
		for _, p := range a.Panes {
			taken[place{p, a.Key}] = append(taken[place{p, a.Key}], a.ID)
		}
	}
	pairs := [][]ActionID{{ActAck, ActUnack}, {ActBulkPause, ActBulkResume}, {ActResume, ActSuspend}, {ActTickPause, ActTickResume}, {ActRuleMute, ActRuleUnmute}, {ActJobRuleOff, ActJobRuleOn}}
	for at, ids := range taken {
		if len(ids) > 1 {
			slices.Sort(ids)
			require.Contains(t, pairs, ids, "%s in pane %s", at.key, at.pane)
		}
	}
	for key, ids := range everywhere {
		if len(ids) > 1 {
			slices.Sort(ids)
			same := [][]ActionID{
				pairs[0], {ActResume, ActSuspend, ActRuleMute, ActRuleUnmute, ActJobRuleOff, ActJobRuleOn}, {ActJobCancel, ActResolve}, {ActFlagSet, ActJobSubscribe},
				{ActBulkPlan, ActRuleAdd, ActExecRegister},
				{ActBulkPause, ActBulkResume, ActHostDrain, ActTickPause, ActTickResume}, {ActBulkRun, ActHostStart}, {ActBulkUndo, ActUndoRequeue}, {ActNotifyRequeue, ActRequeue}, {ActBulkAbort, ActHostStop},
			}
			require.Contains(t, same, ids, "%s means one thing everywhere", key)
		}
	}
}
