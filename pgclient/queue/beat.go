package queue

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// beatKeys returns the keys of the payload of a heartbeat.
func beatKeys() []string {
	return []string{"state", "done_total", "in_flight", "last_work_at", "now"}
}

var (
	beatStates = []string{"working", "idle", "stopped"}
	wholeText  = regexp.MustCompile(`^[0-9]{1,15}$`)
	timeText   = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-](0\d|1[0-5]):[0-5]\d)$`)
)

// CheckHeartbeat returns a usage error if a text is not the payload of a heartbeat of which every value
// will be shown; where is its place, such as --payload. The database stores other keys and values too,
// and takes them for left out; so is null here.
func CheckHeartbeat(where, text string) error {
	values, err := readObject(where, text)
	if err != nil {
		return err
	}
	var unknown []string
	for key := range values {
		if !slices.Contains(beatKeys(), key) {
			unknown = append(unknown, strconv.Quote(key))
		}
	}
	if len(unknown) > 0 {
		return NewError(KindUsage, "a heartbeat has no key "+slices.Min(unknown), where, "use "+strings.Join(beatKeys(), ", "))
	}
	for _, key := range beatKeys() {
		raw := string(values[key])
		if raw == "" || raw == "null" {
			continue
		}
		v := raw
		if raw[0] == '"' {
			_ = json.Unmarshal(values[key], &v)
		}
		what, do := "", ""
		switch key {
		case "state":
			if !slices.Contains(beatStates, v) {
				what, do = "none of "+strings.Join(beatStates, ", "), ""
			}
		case "done_total", "in_flight":
			if !wholeText.MatchString(v) {
				what, do = "not a whole number", "use 0 to 999999999999999"
			}
		default:
			if at, err := time.Parse(time.RFC3339, v); err != nil || !timeText.MatchString(v) || at.UTC().Year() < 2000 || at.UTC().Year() >= 2200 {
				what, do = "not a time (RFC 3339) from 2000 to 2199", "write it like 2025-11-28T10:00:00Z"
			}
		}
		if what != "" {
			return NewError(KindUsage, fmt.Sprintf("the %s of a heartbeat is %s: %s", key, what, Clean(raw).Cut(60)), where, do)
		}
	}
	return nil
}
