package pgscan

// Times are converted between PostgreSQL and this program. A stored time that Go cannot hold or
// print is read as the value that Calendar returns, so that no list, snapshot or verb fails because
// of it.

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/qtop/qtop/pgclient/queue"
)

// RegisterTimes makes a connection convert times with timeCodec. The resulting times are in UTC.
func RegisterTimes(m *pgtype.Map) {
	m.RegisterType(&pgtype.Type{
		Name: "timestamptz", OID: pgtype.TimestamptzOID, Codec: timeCodec{&pgtype.TimestamptzCodec{ScanLocation: time.UTC}},
	})
	m.RegisterType(&pgtype.Type{Name: "json", OID: pgtype.JSONOID, Codec: &pgtype.JSONCodec{Marshal: json.Marshal, Unmarshal: Unmarshal}})
	m.RegisterType(&pgtype.Type{Name: "jsonb", OID: pgtype.JSONBOID, Codec: &pgtype.JSONBCodec{Marshal: json.Marshal, Unmarshal: Unmarshal}})
}

// timeCodec is the codec of timestamptz for time.Time; other types use pgx's.
type timeCodec struct{ *pgtype.TimestamptzCodec }

// PlanScan implements pgtype.Codec.
func (c timeCodec) PlanScan(m *pgtype.Map, oid uint32, format int16, target any) pgtype.ScanPlan {
	if _, ok := target.(*time.Time); ok {
		return timeScan{c.TimestamptzCodec.PlanScan(m, oid, format, &pgtype.Timestamptz{})}
	}
	return c.TimestamptzCodec.PlanScan(m, oid, format, target)
}

// PlanEncode implements pgtype.Codec.
func (c timeCodec) PlanEncode(m *pgtype.Map, oid uint32, format int16, value any) pgtype.EncodePlan {
	if _, ok := value.(time.Time); ok {
		return timeEncode{c.TimestamptzCodec.PlanEncode(m, oid, format, pgtype.Timestamptz{})}
	}
	return c.TimestamptzCodec.PlanEncode(m, oid, format, value)
}

type timeScan struct{ plan pgtype.ScanPlan }

// Scan implements pgtype.ScanPlan.
func (s timeScan) Scan(src []byte, target any) error {
	if src == nil {
		return fmt.Errorf("cannot scan NULL into %T", target)
	}
	var t pgtype.Timestamptz
	if err := s.plan.Scan(src, &t); err != nil {
		return err
	}
	to, ok := target.(*time.Time)
	if !ok {
		return fmt.Errorf("cannot scan a time into %T", target)
	}
	*to = Calendar(t)
	return nil
}

type timeEncode struct{ plan pgtype.EncodePlan }

// Encode implements pgtype.EncodePlan. A time that was read as infinite is sent as infinite.
func (e timeEncode) Encode(value any, buf []byte) ([]byte, error) {
	at, ok := value.(time.Time)
	if !ok {
		return nil, fmt.Errorf("cannot send %T as a time", value)
	}
	t := pgtype.Timestamptz{Time: at, Valid: true}
	switch {
	case t.Time.Equal(queue.Infinite(1)):
		t.InfinityModifier = pgtype.Infinity
	case t.Time.Equal(queue.Infinite(-1)):
		t.InfinityModifier = pgtype.NegativeInfinity
	}
	return e.plan.Encode(t, buf)
}

// Calendar returns the Go value that represents a stored time, also an infinite one.
func Calendar(t pgtype.Timestamptz) time.Time {
	switch t.InfinityModifier {
	case pgtype.Infinity:
		return queue.Infinite(1)
	case pgtype.NegativeInfinity:
		return queue.Infinite(-1)
	case pgtype.Finite:
	}
	return queue.Calendar(t.Time)
}

// Unmarshal is json.Unmarshal for JSON that PostgreSQL wrote, which may contain times that RFC 3339
// cannot express.
func Unmarshal(raw []byte, v any) error {
	to := reflect.ValueOf(v)
	if to.Kind() != reflect.Pointer || to.IsNil() {
		return json.Unmarshal(raw, v)
	}
	before := reflect.New(to.Type().Elem()).Elem()
	before.Set(to.Elem())
	err := json.Unmarshal(raw, v)
	if err == nil || !odd.Match(raw) {
		return err
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var tree any
	if d.Decode(&tree) != nil {
		return err
	}
	told, treeErr := json.Marshal(calendared(tree, to.Type()))
	if treeErr != nil {
		return err
	}
	to.Elem().Set(before)
	return json.Unmarshal(told, v)
}

// odd matches quoted texts in JSON that may be times without an RFC 3339 form; it also matches
// some other texts.
var (
	odd  = regexp.MustCompile(`"(?:-?infinity|[^"]*\dT[^"]* BC|\d{5,}-[^"]*T[^"]*)"`)
	late = regexp.MustCompile(`^\d{5,}-\d\d-\d\dT`)
)

// calendared replaces times without an RFC 3339 form in a JSON tree by the value of Calendar,
// wherever the target type has a time.
func calendared(tree any, t reflect.Type) any {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == reflect.TypeFor[time.Time]() {
		s, ok := tree.(string)
		switch {
		case !ok:
			return tree
		case s == "infinity":
			return queue.Infinite(1)
		case s == "-infinity":
			return queue.Infinite(-1)
		case strings.HasSuffix(s, " BC"):
			return queue.Calendar(time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC))
		case late.MatchString(s):
			return queue.Calendar(time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC))
		}
		return tree
	}
	switch x := tree.(type) {
	case []any:
		if k := t.Kind(); k == reflect.Slice || k == reflect.Array {
			for i := range x {
				x[i] = calendared(x[i], t.Elem())
			}
		}
	case map[string]any:
		switch t.Kind() { //nolint:exhaustive // a JSON object is read into one of these two
		case reflect.Map:
			for k := range x {
				x[k] = calendared(x[k], t.Elem())
			}
		case reflect.Struct:
			for _, f := range reflect.VisibleFields(t) {
				name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
				if name == "" {
					name = f.Name
				}
				if member, ok := x[name]; ok && f.IsExported() {
					x[name] = calendared(member, f.Type)
				}
			}
		}
	}
	return tree
}
