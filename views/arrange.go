package views

import "slices"

// Arrange returns the indices of the rows for which keep returns true (nil
// keeps all), in the order src.Sorts[sort]. It is for a change of the
// snapshot, the filter or the order; a cursor movement needs none.
func Arrange(src Source, sort int, keep func(i int) bool) []int {
	order := make([]int, 0, src.Len)
	for i := range src.Len {
		if keep == nil || keep(i) {
			order = append(order, i)
		}
	}
	if sort < 0 || sort >= len(src.Sorts) || src.Sorts[sort].Less == nil {
		return order
	}
	less := src.Sorts[sort].Less
	slices.SortStableFunc(order, func(a, b int) int {
		if la, lb := src.Lower(a), src.Lower(b); la || lb {
			switch {
			case la == lb:
				return 0 // an order applies to the first table only
			case la:
				return 1
			}
			return -1
		}
		switch {
		case less(a, b):
			return -1
		case less(b, a):
			return 1
		}
		return 0
	})
	return order
}
