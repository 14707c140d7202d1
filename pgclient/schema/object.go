package schema

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// kind is the kind of an object that a file in code/ declares. Objects are installed in the order of the kinds below,
// but functions and views together.
type kind string

const (
	function kind = "function"
	view     kind = "view"
	trigger  kind = "trigger"
	rights   kind = "rights"
	comment  kind = "comment"
)

// object is an object that the files in code/ declare: a function, a view, a trigger,
// the rights on a relation or function, or a comment.
type object struct {
	kind kind
	// name identifies the object among those of its kind: fn_job_claim, v_job, trg_job_queue_born
	// on job_queue, TABLE job_queue, COLUMN job_queue.status. All objects are in schema public.
	name string
	sql  string // as written in the file, with placeholders
	file string
	line int
}

func (o object) String() string { return string(o.kind) + " " + o.name }

// at is the object with the file and line that declare it.
func (o object) at() string { return fmt.Sprintf("%s:%d, %s", o.file, o.line, o) }

// hash identifies the source of an object. It is computed before placeholders are expanded, so that
// it does not depend on the role names of a database.
func (o object) hash() string { return shortHash(o.sql) }

func shortHash(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(h, "%d ", len(p))
		h.Write([]byte(p))
	}
	return hex.EncodeToString(h.Sum(nil))[:16]
}

// relation returns the table of a trigger.
func (o object) relation() string {
	_, table, _ := strings.Cut(o.name, " on ")
	return table
}

// header returns the part of a function before its body. The objects that it names must exist when
// the function is created; those in the body only when it runs.
func (o object) header() string {
	if o.kind == function {
		if at := asBody.FindStringIndex(o.sql); at != nil {
			return o.sql[:at[0]]
		}
	}
	return o.sql
}

var (
	asBody        = regexp.MustCompile(`(?i)\bAS \$\w*\$`)
	createObject  = regexp.MustCompile(`^CREATE OR REPLACE (FUNCTION|VIEW) public\.(\w+)`)
	createTrigger = regexp.MustCompile(`^CREATE (?:OR REPLACE|CONSTRAINT) TRIGGER (\w+)\s[^;]*?\sON public\.(\w+)\s`)
	enableAlways  = regexp.MustCompile(`^ALTER TABLE public\.(\w+) ENABLE ALWAYS TRIGGER (\w+);$`)
	grantOn       = regexp.MustCompile(`^GRANT (.+?)\s+ON\s+(?:(TABLE|FUNCTION|SEQUENCE)\s+)?((?:public\.\w+,?\s+)+)TO\s+([^;]+);$`)
	commentOn     = regexp.MustCompile(`^COMMENT ON (\w+)\s+public\.(\w+(?:\.\w+)?)\s+IS\s`)
	qualifiedName = regexp.MustCompile(`\bpublic\.(\w+)`)
)

// declared returns the objects that one statement of a file declares. A grant on
// several relations declares the rights of each.
func declared(s statement, file string) ([]object, error) {
	one := func(k kind, name string) []object {
		return []object{{kind: k, name: name, sql: s.sql, file: file, line: s.line}}
	}
	if m := createObject.FindStringSubmatch(s.sql); m != nil {
		return one(kind(strings.ToLower(m[1])), m[2]), nil
	}
	flat := strings.Join(strings.Fields(uncommented(s.sql)), " ")
	if m := createTrigger.FindStringSubmatch(flat); m != nil {
		return one(trigger, m[1]+" on "+m[2]), nil
	}
	if m := commentOn.FindStringSubmatch(flat); m != nil {
		return one(comment, m[1]+" "+m[2]), nil
	}
	if m := grantOn.FindStringSubmatch(flat); m != nil {
		var out []object
		what := cmp.Or(m[2], "TABLE")
		for _, name := range qualifiedName.FindAllStringSubmatch(m[3], -1) {
			out = append(out, object{
				kind: rights, name: what + " " + name[1], file: file, line: s.line,
				sql: fmt.Sprintf("GRANT %s ON %s public.%s TO %s;", m[1], what, name[1], m[4]),
			})
		}
		return out, nil
	}
	return nil, fmt.Errorf("%s:%d: %.60s… declares no function, view, trigger, grant or comment in schema public", file, s.line, flat)
}

// enabledAlways reports whether the statement makes the trigger declared before it fire also under
// session_replication_role = replica. If so, it adds the statement to that trigger.
func enabledAlways(s statement, file string, before []object) (bool, error) {
	if !strings.HasPrefix(s.sql, "ALTER") { // cheaper than matching a whole function
		return false, nil
	}
	m := enableAlways.FindStringSubmatch(strings.Join(strings.Fields(uncommented(s.sql)), " "))
	if m == nil {
		return false, nil
	}
	if n := len(before) - 1; n >= 0 && before[n].kind == trigger && before[n].name == m[2]+" on "+m[1] {
		before[n].sql += "\n" + m[0]
		return true, nil
	}
	return false, fmt.Errorf("%s:%d: %s must directly follow the declaration of the trigger", file, s.line, m[0])
}

// inOrder sorts objects so that each is after the objects that it needs: functions and views by the
// names in them, then triggers, rights and comments. Otherwise they keep the order of the files.
func inOrder(all []object) ([]object, error) {
	byName := map[string]object{}
	for _, o := range all {
		if o.kind == function || o.kind == view {
			byName[o.name] = o
		}
	}
	var out []object
	state := map[string]int{} // 1 = the objects that it needs are being placed, 2 = placed
	var place func(o object) error
	place = func(o object) error {
		switch state[o.name] {
		case 1:
			return fmt.Errorf("%s:%d: %s depends on itself through other objects", o.file, o.line, o)
		case 2:
			return nil
		}
		state[o.name] = 1
		for _, m := range qualifiedName.FindAllStringSubmatch(uncommented(o.header()), -1) {
			if need, ok := byName[m[1]]; ok && need.name != o.name {
				if err := place(need); err != nil {
					return err
				}
			}
		}
		state[o.name] = 2
		out = append(out, o)
		return nil
	}
	for _, o := range all {
		if o.kind == function || o.kind == view {
			if err := place(o); err != nil {
				return nil, err
			}
		}
	}
	for _, k := range []kind{trigger, rights, comment} {
		for _, o := range all {
			if o.kind == k {
				out = append(out, o)
			}
		}
	}
	return out, nil
}

// merged joins the grants on one relation into one rights object, and adds empty
// rights for functions, views, tables, default partitions and sequences without a grant.
func merged(all []object, tables forms) []object {
	var out []object
	at := map[string]int{}
	add := func(o object) {
		if i, ok := at[o.name]; ok {
			out[i].sql += "\n" + o.sql
			return
		}
		at[o.name] = len(out)
		out = append(out, o)
	}
	for _, o := range all {
		if o.kind == rights {
			add(o)
		}
	}
	for _, o := range all {
		if o.kind == function {
			add(object{kind: rights, name: "FUNCTION " + o.name, file: o.file, line: o.line})
		}
		if o.kind == view {
			add(object{kind: rights, name: "TABLE " + o.name, file: o.file, line: o.line})
		}
	}
	for _, name := range tables.withRights() {
		if _, ok := at[name]; !ok {
			add(object{kind: rights, name: name, file: "tables.txt"})
		}
	}
	return append(slices.DeleteFunc(slices.Clone(all), func(o object) bool { return o.kind == rights }), out...)
}

// install returns the statements that make the object as declared, whether or not it is installed.
func (o object) install() string {
	if o.kind == trigger && strings.HasPrefix(o.sql, "CREATE CONSTRAINT TRIGGER") { // has no OR REPLACE
		return o.drop() + "\n" + o.sql
	}
	if o.kind == rights {
		return strings.TrimSpace(o.drop() + "\n" + o.sql)
	}
	return o.sql
}

// drop returns the statement that removes the object, which must exist.
func (o object) drop() string {
	switch o.kind {
	case function:
		return "DROP FUNCTION public." + o.name + ";"
	case view:
		return "DROP VIEW public." + o.name + ";"
	case trigger:
		name, table, _ := strings.Cut(o.name, " on ")
		return "DROP TRIGGER IF EXISTS " + name + " ON public." + table + ";"
	case rights:
		return fmt.Sprintf("REVOKE ALL ON %s FROM PUBLIC, %s CASCADE;", o.target(), quotedRoles()) // CASCADE: also what they granted to others
	case comment:
		return "COMMENT ON " + o.target() + " IS NULL;"
	}
	return ""
}

// optional reports whether o revokes the rights on a part that may be missing: a sequence disappears
// with its column.
func (o object) optional() bool { return o.kind == rights && o.sql == "" }

// target returns the object as it follows ON in GRANT and COMMENT, such as TABLE public.job_queue.
func (o object) target() string {
	what, name, _ := strings.Cut(o.name, " ")
	return what + " public." + name
}

// subject is the function or view to which rights or a comment apply: v_job for
// COLUMN v_job.status; empty for other kinds.
func (o object) subject() string {
	if o.kind != rights && o.kind != comment {
		return ""
	}
	_, name, _ := strings.Cut(o.name, " ")
	name, _, _ = strings.Cut(name, ".")
	return name
}

func quotedRoles() string {
	var all []string
	for _, r := range Roles() {
		all = append(all, `:"`+r+`"`)
	}
	return strings.Join(all, ", ")
}
