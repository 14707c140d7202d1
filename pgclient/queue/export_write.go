package queue

// Rows are written for programs: as CSV for spreadsheets, as JSON, or as JSON lines. All formats
// have the same content, because each CSV cell is made from a member of the row's JSON object:
// times are RFC 3339 in UTC, numbers have all their digits, lists and objects are compact JSON, and
// null is an empty cell.

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"unicode/utf16"
)

// ExportFormat is the format in which rows are written.
type ExportFormat string

// The formats.
const (
	ExportCSV   ExportFormat = "csv"
	ExportJSON  ExportFormat = "json"  // one array
	ExportLines ExportFormat = "jsonl" // one object per line
)

// ExportFormatOf returns the format that belongs to the extension of a file name.
func ExportFormatOf(file string) (ExportFormat, error) {
	switch end := strings.ToLower(filepath.Ext(file)); end {
	case ".csv":
		return ExportCSV, nil
	case ".json":
		return ExportJSON, nil
	case ".jsonl", ".ndjson":
		return ExportLines, nil
	default:
		return "", &Error{Kind: KindUsage, What: Clean(fmt.Sprintf("the name of the file ends in %q", end)), Do: Clean("end it in .csv, .json or .jsonl")}
	}
}

// rowWriter writes the rows of one export.
type rowWriter struct {
	w       io.Writer
	format  ExportFormat
	columns []string
	csv     *csv.Writer
	cells   []string
	begun   bool // JSON: a row was written
}

func newRowWriter(w io.Writer, f ExportFormat, columns []string) *rowWriter {
	return &rowWriter{w: w, format: f, columns: columns}
}

// begin writes the text before the first row.
func (o *rowWriter) begin() error {
	if o.begun {
		return nil
	}
	o.begun = true
	switch o.format {
	case ExportCSV:
		o.csv = csv.NewWriter(o.w)
		return o.csv.Write(o.columns)
	case ExportJSON:
		_, err := io.WriteString(o.w, "[")
		return err
	case ExportLines:
	}
	return nil
}

func (o *rowWriter) row(row any) error {
	text, err := rowJSON(row)
	if err != nil {
		return err
	}
	if o.format == ExportCSV {
		if err := o.begin(); err != nil {
			return err
		}
		if o.cells, err = cellsOf(text, o.columns, o.cells[:0]); err != nil {
			return err
		}
		return o.csv.Write(o.cells)
	}
	lead, tail := "", "\n"
	if o.format == ExportJSON {
		lead, tail = ",\n", ""
		if !o.begun {
			lead = "\n"
		}
	}
	if err := o.begin(); err != nil {
		return err
	}
	_, err = io.WriteString(o.w, lead+text+tail)
	return err
}

// end writes the text after the last row; a CSV without rows has only its header.
func (o *rowWriter) end() error {
	if err := o.begin(); err != nil {
		return err
	}
	switch o.format {
	case ExportCSV:
		o.csv.Flush()
		return o.csv.Error()
	case ExportJSON:
		_, err := io.WriteString(o.w, "\n]\n")
		return err
	case ExportLines:
	}
	return nil
}

// rowJSON returns a row as a verb prints it with --output json.
func rowJSON(row any) (string, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(row)
	return BoundJSON(EscapeJSON(strings.TrimSuffix(b.String(), "\n"))), err
}

// EscapeJSON writes unsafe characters of a JSON text as \u escapes; they can occur only inside
// strings.
func EscapeJSON(s string) string {
	if strings.IndexFunc(s, Unsafe) < 0 {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		switch {
		case !Unsafe(r):
			b.WriteRune(r)
		case r > 0xffff:
			hi, lo := utf16.EncodeRune(r)
			fmt.Fprintf(&b, `\u%04x\u%04x`, hi, lo)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

// Member is a member of a row's JSON object, which is a column of its CSV.
type Member struct {
	Name  string
	Index []int // of the struct field, as in reflect.StructField
}

// Members returns the members of a row's JSON object in their order, including those that are
// omitted when empty.
func Members(row reflect.Type) (members []Member) {
	for _, f := range reflect.VisibleFields(row) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" && !f.Anonymous {
			name = f.Name
		}
		if f.IsExported() && name != "" && name != "-" {
			members = append(members, Member{name, f.Index})
		}
	}
	return members
}

func columnsOf(row any) (names []string) {
	for _, m := range Members(reflect.TypeOf(row)) {
		names = append(names, m.Name)
	}
	return names
}

// cellsOf splits the JSON of a row into CSV cells.
func cellsOf(text string, columns []string, cells []string) ([]string, error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal([]byte(text), &members); err != nil {
		return nil, err
	}
	var cut []string
	if t, ok := members["truncated"]; ok {
		_ = json.Unmarshal(t, &cut) // if it is no list of names, it is an ordinary column
	}
	for _, c := range columns {
		raw := string(members[c])
		if !strings.HasPrefix(raw, `"`) && slices.Contains(cut, c) {
			raw += "…" // a shortened text ends with an ellipsis already
		}
		switch {
		case raw == "null":
			raw = ""
		case strings.HasPrefix(raw, `"`):
			var s string
			if err := json.Unmarshal([]byte(raw), &s); err != nil {
				return nil, err
			}
			raw = harmless(Clean(s).String())
		}
		cells = append(cells, raw)
	}
	return cells, nil
}

// harmless puts an apostrophe before a text that a spreadsheet would treat as a formula. It also
// does so before a text that begins with an apostrophe, so that a reader who removes one leading
// apostrophe gets the original text. Other values need none: a number is no formula, and JSON
// begins with a bracket.
func harmless(s string) string {
	if strings.IndexAny(s, "=+-@\t\r\n'＝＋－＠") == 0 {
		return "'" + s
	}
	return s
}
