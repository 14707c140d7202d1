package queue

// This file is how times are told that PostgreSQL has and no calendar of a program does: before year 1, after year
// 9999, infinite. JSON has none of them.

import "time"

// beyond is a time no calendar holds, as the first or the last one that it does. The nanoseconds tell them apart from
// what PostgreSQL can hold, which counts microseconds.
type beyond struct {
	at   time.Time
	word string
}

// The indices of what beyonds returns.
const (
	infinitelyLate = iota
	late
	infinitelyEarly
	early
)

func beyonds() [4]beyond {
	last := time.Date(9999, 12, 31, 23, 59, 59, 999_999_000, time.UTC)
	return [...]beyond{
		infinitelyLate:  {last.Add(999), "infinity"},
		late:            {last.Add(998), "after year 9999"},
		infinitelyEarly: {time.Time{}.Add(1), "-infinity"},
		early:           {time.Time{}.Add(2), "before year 1"},
	}
}

// Infinite is the time that stands for PostgreSQL's infinity, or with a negative sign for its -infinity.
func Infinite(sign int) time.Time {
	if sign < 0 {
		return beyonds()[infinitelyEarly].at
	}
	return beyonds()[infinitelyLate].at
}

// Calendar is t, or what stands for it where its year is not 1 to 9999 in UTC.
func Calendar(t time.Time) time.Time {
	t = t.UTC()
	switch year := t.Year(); {
	case year < 1:
		return beyonds()[early].at
	case year > 9999:
		return beyonds()[late].at
	}
	return t
}

// Uncalendared is the word for a time that stands for one no calendar holds; "" for any other.
func Uncalendared(t time.Time) string {
	if y := t.UTC().Year(); y > 1 && y < 9999 {
		return ""
	}
	for _, b := range beyonds() {
		if t.Equal(b.at) {
			return b.word
		}
	}
	return ""
}

// Stamp is t in UTC by the layout, or the word for a time that no calendar holds.
func Stamp(t time.Time, layout string) string {
	if word := Uncalendared(t); word != "" {
		return word
	}
	return t.UTC().Format(layout)
}
