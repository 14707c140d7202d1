package views

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCommandsWrapAtBlanks(t *testing.T) {
	command := "qtop requeue --filter 'code:HTTP_503 endpoint:hooks.acme.example' --reason 'it is back' --dry-run"
	for w := 20; w < 110; w++ {
		lines := wrapCommand(command, w)
		for _, line := range lines {
			require.LessOrEqual(t, len(line), w)
		}
		if w >= len("'code:HTTP_503 endpoint:hooks.acme.example'") {
			require.Equal(t, command, strings.Join(lines, " "), w)
			for _, line := range lines {
				require.Zero(t, strings.Count(line, "'")%2, "%d: %s", w, line)
			}
		}
	}
}
