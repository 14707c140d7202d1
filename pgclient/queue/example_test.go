package queue_test

import (
	"errors"
	"fmt"
	"time"

	"github.com/qtop/qtop/pgclient/queue"
)

// A filter is parsed once. Here it is then used on rows in memory; a list in the database uses the
// same filter in SQL.
func ExampleParseFilter() {
	filter, err := queue.ParseFilter("code:HTTP_5* age>2h", queue.DeadLetterFields())
	if err != nil {
		fmt.Println(err)
		return
	}
	now := time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)
	for _, code := range []string{"HTTP_503", "TIMEOUT"} {
		row := map[string]any{"code": code, "age": 3 * time.Hour}
		fmt.Println(code, filter.Match(func(field string) (any, bool) { v, ok := row[field]; return v, ok }, now))
	}
	// Output:
	// HTTP_503 true
	// TIMEOUT false
}

// Every error says what happened, where, and what to do; errors.As finds it in an error that wraps
// it.
func ExampleError() {
	var err error = queue.NewError(queue.KindConfig, "the handler is nil", "handlers, kind mail.send", "set a handler or remove the entry")
	err = fmt.Errorf("starting: %w", err)

	var e *queue.Error
	if errors.As(err, &e) {
		fmt.Println(e.What)
		fmt.Println(e.Do)
	}
	// Output:
	// the handler is nil
	// set a handler or remove the entry
}
