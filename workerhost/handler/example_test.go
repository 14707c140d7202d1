package handler_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/qtop/qtop/workerhost/handler"
)

// A Go handler, called by a Runner as a test of the handler would call it. A host calls the same
// handler when workerhost.Options.Handlers contains it.
func ExampleFunc() {
	ship := handler.Func(func(_ context.Context, job handler.Job) error {
		var payload struct{ Order int }
		if err := json.Unmarshal(job.Payload, &payload); err != nil {
			return handler.Permanent(handler.Coded("BAD_PAYLOAD", err))
		}
		if payload.Order == 0 {
			return handler.Coded("NO_ORDER", errors.New("the payload names no order"))
		}
		fmt.Println("shipped order", payload.Order)
		return nil
	})

	var runner handler.Runner
	defer runner.Close()
	for _, payload := range []string{`{"order": 17}`, `{}`, `[]`} {
		err := runner.Run(context.Background(), ship, handler.Job{Kind: "order.ship", Payload: json.RawMessage(payload)})
		if err != nil {
			code, _, permanent := handler.Outcome(err)
			fmt.Println(code, "permanent:", permanent)
		}
	}
	// Output:
	// shipped order 17
	// NO_ORDER permanent: false
	// BAD_PAYLOAD permanent: true
}
