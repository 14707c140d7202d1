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
	return &queue.Error{
		Kind: queue.KindUsage, What: queue.Clean(fe.What),
		Where: queue.Clean(fmt.Sprintf("filter, column %d", fe.Column)), Do: queue.Clean(fe.Do), Err: err,
	}
}
