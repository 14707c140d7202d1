package filtersql

import (
	"errors"
	"fmt"

	"github.com/qtop/qtop/pgclient/queue"
)

// Error makes a usage error of a filter that does not parse.
func Error(err error) error {
	var fe *queue.FilterError
	if !errors.As(err, &fe) {
		return err
	}
	return queue.NewError(queue.KindUsage, fe.What, fmt.Sprintf("filter, column %d", fe.Column), fe.Do).Because(err)
}
