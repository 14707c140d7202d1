package queue_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/queue"
)

// A heartbeat is refused if the lists would leave one of its values out.
func TestHeartbeats(t *testing.T) {
	for _, good := range []string{
		"{}", ` { "state" : "working" , "in_flight" : 0, "done_total":999999999999999} `, `{"state":null,"done_total":"12","last_work_at":null}`,
		`{"state":"stopped","last_work_at":"2025-11-28T10:00:00Z","now":"2025-11-28T10:00:00.123456789+01:00"}`,
	} {
		require.NoError(t, queue.CheckHeartbeat("--payload", good), good)
	}
	for bad, want := range map[string]string{
		"nonsense":                                `the payload is not a JSON object (--payload): write it like {"id": 1}`,
		"[]":                                      `the payload is not a JSON object (--payload): write it like {"id": 1}`,
		"null":                                    `the payload is not a JSON object (--payload): write it like {"id": 1}`,
		"{\"state\":\"\xe4\"}":                    `the payload is not UTF-8 (--payload): `,
		`{"sate":"working"}`:                      `a heartbeat has no key "sate" (--payload): use state, done_total, in_flight, last_work_at, now`,
		`{"State":"working"}`:                     `a heartbeat has no key "State" (--payload): use state, `,
		`{"b":1,"state":"idle","a":1}`:            `a heartbeat has no key "a" (--payload): `,
		`{"state":"Working"}`:                     `the state of a heartbeat is none of working, idle, stopped: "Working" (--payload)`,
		`{"state":1}`:                             `the state of a heartbeat is none of working, idle, stopped: 1 (--payload)`,
		`{"in_flight":-3}`:                        `the in_flight of a heartbeat is not a whole number: -3 (--payload): use 0 to 999999999999999`,
		`{"in_flight":1.5}`:                       `the in_flight of a heartbeat is not a whole number: 1.5 (--payload): `,
		`{"done_total":1000000000000000}`:         `the done_total of a heartbeat is not a whole number: 1000000000000000 (--payload): use 0 to 999999999999999`,
		`{"done_total":["x"]}`:                    `the done_total of a heartbeat is not a whole number: ["x"] (--payload): `,
		`{"last_work_at":"2025-11-28 10:00"}`:     `the last_work_at of a heartbeat is not a time (RFC 3339) from 2000 to 2199: "2025-11-28 10:00" (--payload): write it like 2025-11-28T10:00:00Z`,
		`{"last_work_at":1764324000}`:             `the last_work_at of a heartbeat is not a time `,
		`{"last_work_at":"1999-12-31T23:59:59Z"}`: `the last_work_at of a heartbeat is not a time `,
		`{"now":"2025-02-30T10:00:00Z"}`:          `the now of a heartbeat is not a time `,
		`{"now":"2025-02-20T10:00:00+23:00"}`:     `the now of a heartbeat is not a time `,
	} {
		require.ErrorContains(t, queue.CheckHeartbeat("--payload", bad), want, bad)
	}
}
