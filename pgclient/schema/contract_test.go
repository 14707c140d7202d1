// The database has the names that the source documents define. The list was typed from the
// documents, not copied from the migrations.

package schema_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// contractFunction matches a line NAME(argument type, …) = result; the result is optional.
var contractFunction = regexp.MustCompile(`^(\w+)\(([^)]*)\)(?: = (.+))?$`)

func TestContractNames(t *testing.T) {
	c := newCore(t)
	b, err := os.ReadFile("testdata/contract.txt")
	require.NoError(t, err)
	document := ""
	var missing []string
	there := func(line, sql string, args ...any) {
		t.Helper()
		if !get[bool](c, "SELECT EXISTS ("+sql+")", args...) {
			missing = append(missing, document+": "+line)
		}
	}
	checked := 0
	for line := range strings.Lines(string(b)) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			document = strings.TrimPrefix(line, "# ")
			continue
		}
		checked++
		what, rest, _ := strings.Cut(line, " ")
		words := strings.Fields(rest)
		switch what {
		case "table", "view":
			name, columns, _ := strings.Cut(rest, " ")
			kinds := map[string]string{"table": "rp", "view": "v"}[what]
			there(line, "SELECT FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relname = $1 AND strpos($2, relkind::text) > 0", name, kinds)
			for _, column := range regexp.MustCompile(`\w+(:[a-z][\w\[\]()]*( varying\(\d+\))?)?`).FindAllString(columns, -1) {
				column, typ, _ := strings.Cut(column, ":")
				there(name+"."+column+" "+typ, `SELECT FROM pg_attribute WHERE attrelid = to_regclass('public.' || $1) AND attname = $2 AND NOT attisdropped
					AND ($3 = '' OR format_type(atttypid, atttypmod) = $3)`, name, column, strings.ReplaceAll(typ, "timestamptz", "timestamp with time zone"))
			}
		case "function":
			part := contractFunction.FindStringSubmatch(rest)
			require.NotNil(t, part, line)
			names, types := []string{}, []string{}
			for a := range strings.SplitSeq(part[2], ", ") {
				if name, typ, ok := strings.Cut(a, " "); ok {
					names, types = append(names, name), append(types, typ)
				}
			}
			// More arguments may follow if they have defaults.
			there(line, `SELECT FROM pg_proc p WHERE p.pronamespace = 'public'::regnamespace AND p.proname = $1
				AND COALESCE((p.proargnames)[1:cardinality($2::text[])], '{}') = $2::text[]
				AND COALESCE((ARRAY(SELECT format_type(a, NULL) FROM unnest(p.proargtypes) WITH ORDINALITY x (a, n) ORDER BY n))[1:cardinality($2::text[])], '{}') = ARRAY(
					SELECT format_type(to_regtype(x), NULL) FROM unnest($3::text[]) WITH ORDINALITY y (x, n) ORDER BY n)
				AND p.pronargs - p.pronargdefaults <= cardinality($2::text[]) AND ($4 = '' OR format_type(p.prorettype, NULL) = $4)`, part[1], names, types, part[3])
		case "argument":
			there(line, "SELECT FROM pg_proc WHERE pronamespace = 'public'::regnamespace AND proname = $1 AND ($2 = '-' OR $2 = ANY (proargnames))", words[0], words[1])
		case "trigger":
			there(line, "SELECT FROM pg_trigger WHERE tgname = $1 AND tgrelid = to_regclass('public.' || $2) AND tgenabled = 'O'", words[0], words[1])
		case "index":
			there(line, "SELECT FROM pg_index WHERE indexrelid = to_regclass('public.' || $1) AND indrelid = to_regclass('public.' || $2) AND indisvalid", words[0], words[1])
		case "constraint":
			there(line, "SELECT FROM pg_constraint WHERE conname = $1 AND conrelid = to_regclass('public.' || $2) AND convalidated", words[0], words[1])
		case "primary", "unique":
			there(line, `SELECT FROM pg_index i WHERE i.indrelid = to_regclass('public.' || $1) AND i.indisunique AND (i.indisprimary OR $3 = 'unique') AND i.indpred IS NULL
				AND ARRAY(SELECT a.attname::text FROM pg_attribute a WHERE a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey) ORDER BY 1) = ARRAY(SELECT unnest($2::text[]) ORDER BY 1)`,
				words[0], words[1:], what)
		case "role":
			there(line, "SELECT FROM pg_roles WHERE rolname = $1 AND NOT rolcanlogin", words[0])
		case "flag":
			there(line, "SELECT FROM public.dot_config WHERE key = $1 AND value = $2 AND description <> ''", words[0], strings.Join(words[1:], " "))
		case "tick":
			there(line, "SELECT FROM public.queue_tick_worker WHERE worker_name = $1 AND $2 IN (function, '-')", words[0], words[1])
		case "subscription":
			there(line, `SELECT FROM public.event_subscription WHERE (recipient_ref, COALESCE(event_domain, '-'), COALESCE(event_type, '-'), COALESCE(event_stream, '-')) = ($1, $2, $3, $4)
				AND scope_subject_table IS NULL AND scope_filter = '{}' AND NOT mute`, words[0], words[1], words[2], words[3])
		case "type":
			there(line, "SELECT FROM public.event_type_registry WHERE (event_domain, event_type, event_stream, delivery_lane) = ($1, $2, $3, $4) AND active", words[0], words[1], words[2], words[3])
		default:
			t.Fatalf("not understood: %s", line)
		}
	}
	require.Empty(t, missing)
	require.Greater(t, checked, 180)
}
