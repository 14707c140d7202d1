package queue

// Times that PostgreSQL can store but that Go's JSON cannot express: before year 1, after year
// 9999, and infinity. Below, "the calendar" means the years 1 to 9999. The functions here represent
// other times as special values of time.Time.

import "time"

// beyond is a time outside the calendar, represented by a time at the first or last moment of the
// calendar. Its nanoseconds distinguish it from every real value, because PostgreSQL stores whole
// microseconds.
type beyond struct {
	at   time.Time
	word string
}

// Indices of the result of beyonds.
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

// Infinite returns the time that represents PostgreSQL's infinity, or with a negative sign its
// -infinity.
func Infinite(sign int) time.Time {
	if sign < 0 {
		return beyonds()[infinitelyEarly].at
	}
	return beyonds()[infinitelyLate].at
}

// Calendar returns t, or its representation if its year in UTC is not 1 to 9999.
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

// Uncalendared returns the words for a time outside the calendar, such as "after year 9999"; "" for
// any other time.
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

// Stamp formats t in UTC with the layout; a time outside the calendar becomes its words.
func Stamp(t time.Time, layout string) string {
	if word := Uncalendared(t); word != "" {
		return word
	}
	return t.UTC().Format(layout)
}
