package fault

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestExplains checks that a fault explains only attempts of the host that it affected, whose result it can have
// kept from the database, and none that was repeated before the fault began.
func TestExplains(t *testing.T) {
	t.Parallel()
	zero := time.Now()
	at := func(seconds float64) time.Time { return zero.Add(time.Duration(seconds * float64(time.Second))) }
	f := Fault{Name: "kill -9", Host: "a", From: at(10), To: at(11), After: time.Second}
	for what, c := range map[string]struct {
		f          Fault
		host       string
		start, end float64
		again      float64
		explains   bool
	}{
		"in the attempt":                       {f, "a", 9, 10.5, 15, true},
		"between the end and the record":       {f, "a", 6, 8, 15, true},
		"long after the end":                   {f, "a", 6, 6.5, 15, false},
		"shortly before the start":             {f, "a", 11.5, 11.6, 15, true},
		"long before the start":                {f, "a", 12.5, 12.6, 15, false},
		"another host":                         {f, "b", 9, 10.5, 15, false},
		"a fault of all hosts":                 {Fault{From: at(10), To: at(11)}, "b", 9, 10.5, 15, true},
		"the work was repeated before a fault": {f, "a", 9, 9.1, 9.5, false},
	} {
		require.Equal(t, c.explains, c.f.Explains(Attempt{Host: c.host, Start: at(c.start), End: at(c.end), Again: at(c.again)}, 3*time.Second), what)
	}
}
