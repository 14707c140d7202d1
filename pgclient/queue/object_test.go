package queue_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/queue"
)

// A value that is not UTF-8 is named, with the word in which it is not.
func TestTextsAreUTF8(t *testing.T) {
	require.NoError(t, queue.CheckUTF8("--comment", "Empfänger � \U0001f600"))
	const do = "(command line): set the terminal and the locale to UTF-8, or convert the text"
	for _, kind := range []queue.ArgKind{queue.ArgText, queue.ArgWord, queue.ArgChoice} {
		require.EqualError(t, queue.Arg{Name: "comment", Kind: kind, Max: 9}.Check("an den Empf\xe4nger von x"), `--comment is not UTF-8: "Empf\xe4nger" `+do)
	}
	require.EqualError(t, queue.CheckReason("gel\xf6scht"), `--reason is not UTF-8: "gel\xf6scht" `+do)
	require.EqualError(t, queue.CheckUTF8("ID", "\xe4"), `ID is not UTF-8: "\xe4" `+do)
	require.Less(t, len(queue.CheckUTF8("ID", strings.Repeat("x", 9000)+"\xe4"+strings.Repeat("x", 9000)).Error()), 200)
}
