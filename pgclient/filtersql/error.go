package filtersql

import (
	"errors"
	"fmt"

	"github.com/qtop/qtop/pgclient/queue"
)

// Error turns a syntax error of a filter into a usage error of a command.
func Error(err error) error {
	var fe *queue.FilterError
	if !errors.As(err, &fe) {
		return err
	}
	return queue.NewError(queue.KindUsage, fe.What, fmt.Sprintf("filter, column %d", fe.Column), fe.Do).Because(err)
}
