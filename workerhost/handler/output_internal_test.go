package handler

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// The end of the output is kept and the memory is bounded, however the output is divided into
// writes.
func TestTailKeepsTheEndOfAnyWrites(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	for _, most := range []int{1, 100, maxOutput, maxOutput + 1, 5 * maxOutput} {
		for _, total := range []int{0, 1, maxOutput - 1, maxOutput, maxOutput + 1, 2 * maxOutput, 2*maxOutput + 1, 20 * maxOutput} {
			var out tail
			var all []byte
			for len(all) < total {
				p := make([]byte, min(1+random.IntN(most), total-len(all)))
				for i := range p {
					p[i] = byte('a' + random.IntN(26))
				}
				n, err := out.Write(p)
				require.NoError(t, err)
				require.Equal(t, len(p), n)
				require.LessOrEqual(t, len(out.buf), 2*maxOutput)
				all = append(all, p...)
			}
			text, cut := out.end()
			require.Equal(t, string(all[max(0, total-maxOutput):]), text, "%d in writes of up to %d", total, most)
			require.Equal(t, total > maxOutput, cut, "%d in writes of up to %d", total, most)
		}
	}
}
