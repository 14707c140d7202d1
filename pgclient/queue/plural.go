package queue

import "strconv"

// Plural returns a number with its noun: 1 job, 2 jobs.
func Plural[N int | int32 | int64](n N, one, many string) string {
	return strconv.FormatInt(int64(n), 10) + " " + Choose(n == 1, one, many)
}
