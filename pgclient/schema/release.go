package schema

import (
	"embed"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
)

//go:embed migrations/*.sql code/*.sql moves seeds.sql release.txt objects.txt tables.txt rows.txt
var files embed.FS

// Release is everything that one version of qtop installs in a database. Current returns the
// release of this program.
type Release struct {
	numbers
	Hash string // of code and seeds, before placeholders are expanded

	migrations []migration
	objects    []object // in the order in which they are installed
	moves      []move
	seeds      string
	own        ownThings
	tables     forms    // the definitions that the migrations make
	rows       []seeded // what seeds.sql inserts
}

// numbers identify a release. They can be read without parsing the SQL, because every console needs
// them before its first snapshot.
type numbers struct {
	Code   int // number of the code; rises with each release that changes it
	Serves int // the oldest code number whose programs this code still serves

	names   []string // of the migrations, in order
	dropped []object // objects of earlier releases that this one does not have
}

// version returns the number of the newest migration.
func (n numbers) version() int32 { return int32(len(n.names)) } //nolint:gosec // a few dozen

// own returns the numbers of this program's release.
var own = sync.OnceValue(func() numbers {
	n, err := loadNumbers(files)
	if err != nil {
		panic(err) // cannot happen: see Current
	}
	return n
})

// migration is a numbered change of tables, types, indexes and constraints.
type migration struct{ name, up, down string }

// title returns the number and the name, such as 001 roles_config.
func (m migration) title() string { return strings.Replace(m.name, "_", " ", 1) }

// move is a bulk change of data that runs after the migration, in its own transactions.
type move struct{ name, sql string }

const downMark = "---- create above / drop below ----"

// Current returns the release that is embedded in this program.
var Current = sync.OnceValue(func() *Release {
	r, err := Load(files)
	if err != nil {
		panic(err) // cannot happen: the tests loaded the same files
	}
	return r
})

// Load reads a release from a file system with the layout of this folder. Its errors name the file
// and the line.
func Load(fsys fs.FS) (*Release, error) {
	r := &Release{}
	var err error
	if r.numbers, err = loadNumbers(fsys); err != nil {
		return nil, err
	}
	if r.seeds, err = readSQL(fsys, "seeds.sql"); err != nil {
		return nil, err
	}
	if r.own, err = readOwn(fsys); err != nil {
		return nil, err
	}
	if r.tables, err = loadForms(fsys); err != nil {
		return nil, err
	}
	if r.rows, err = loadRows(fsys); err != nil {
		return nil, err
	}
	for _, name := range r.names {
		text, err := readSQL(fsys, "migrations/"+name+".sql")
		if err != nil {
			return nil, err
		}
		up, down, found := strings.Cut(text, downMark)
		if !found {
			return nil, fmt.Errorf("migrations/%s.sql:1: no line %q between the change and the way back", name, downMark)
		}
		r.migrations = append(r.migrations, migration{name, strings.TrimSpace(up), strings.TrimSpace(down)})
	}
	if r.moves, err = loadMoves(fsys); err != nil {
		return nil, err
	}
	return r, r.loadCode(fsys)
}

// readSQL reads a file and checks its placeholders.
func readSQL(fsys fs.FS, name string) (string, error) {
	b, err := fs.ReadFile(fsys, name)
	if err == nil {
		_, err = expand(string(b), roleSet{})
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w", name, err)
	}
	return string(b), nil
}

func (r *Release) loadCode(fsys fs.FS) error {
	names, err := fs.Glob(fsys, "code/*.sql")
	if err != nil {
		return err
	}
	var all []object
	var texts []string
	for _, name := range names {
		text, err := readSQL(fsys, name)
		if err != nil {
			return err
		}
		texts = append(texts, name, text)
		for _, s := range statements(text) {
			if always, err := enabledAlways(s, name, all); always || err != nil {
				if err != nil {
					return err
				}
				continue
			}
			found, err := declared(s, name)
			if err != nil {
				return err
			}
			all = append(all, found...)
		}
	}
	if err := onceEach(all); err != nil {
		return err
	}
	if r.objects, err = inOrder(merged(all, r.tables)); err != nil {
		return err
	}
	r.Hash = shortHash(append(texts, "seeds.sql", r.seeds)...)
	for _, o := range r.dropped {
		if slices.ContainsFunc(r.objects, o.same) {
			return fmt.Errorf("release.txt drops %s, but a file in code/ still declares it", o)
		}
	}
	return nil
}

func (o object) same(p object) bool { return o.kind == p.kind && o.name == p.name }

// onceEach refuses a function, view, trigger or comment that is declared twice.
func onceEach(all []object) error {
	seen := map[string]object{}
	for _, o := range all {
		key := o.String()
		if o.kind == view { // a view and a function must not share a name either
			key = string(function) + " " + o.name
		}
		if first, ok := seen[key]; ok && o.kind != rights {
			return fmt.Errorf("%s:%d: %s is defined already in %s:%d", o.file, o.line, o, first.file, first.line)
		}
		seen[key] = o
	}
	return nil
}

var (
	numberLine  = regexp.MustCompile(`^(code|serves) (\d+)$`)
	droppedLine = regexp.MustCompile(`^dropped (function|view|trigger) (\w+(?: on \w+)?)$`)
)

// loadNumbers reads release.txt and the names of the migrations.
func loadNumbers(fsys fs.FS) (n numbers, err error) {
	files, err := fs.Glob(fsys, "migrations/*.sql")
	if err != nil {
		return n, err
	}
	for i, file := range files {
		name := strings.TrimSuffix(strings.TrimPrefix(file, "migrations/"), ".sql")
		if !strings.HasPrefix(name, fmt.Sprintf("%03d_", i+1)) {
			return n, fmt.Errorf("%s: its number must be %03d", file, i+1)
		}
		n.names = append(n.names, name)
	}
	text, err := fs.ReadFile(fsys, "release.txt")
	if err != nil {
		return n, err
	}
	at := 0
	for line := range strings.Lines(string(text)) {
		at++
		line, _, _ = strings.Cut(line, "#")
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		if m := droppedLine.FindStringSubmatch(line); m != nil {
			n.dropped = append(n.dropped, object{kind: kind(m[1]), name: m[2], file: "release.txt", line: at})
			continue
		}
		m := numberLine.FindStringSubmatch(line)
		if m == nil {
			return n, fmt.Errorf("release.txt:%d: %q is not a known line", at, line)
		}
		v, err := strconv.Atoi(m[2])
		if err != nil {
			return n, fmt.Errorf("release.txt:%d: %w", at, err)
		}
		if m[1] == "code" {
			n.Code = v
		} else {
			n.Serves = v
		}
	}
	if n.Code < 1 || n.Serves > n.Code {
		return n, fmt.Errorf("release.txt: code %d, serves %d: code must be at least 1, and serves at most code", n.Code, n.Serves)
	}
	return n, nil
}

// Declared is an object of the code as written in its file.
type Declared struct {
	Kind, Name string // function fn_job_claim
	SQL        string
	File       string
	Line       int
	Granted    bool // whether a role has the right to call or read it
}

// Declared lists the functions, views and triggers of the release, for checks of
// their text.
func (r *Release) Declared() []Declared {
	granted := map[string]bool{}
	for _, o := range r.objects {
		if o.kind == rights && o.sql != "" {
			granted[o.subject()] = true
		}
	}
	var out []Declared
	for _, o := range r.objects {
		if o.kind == function || o.kind == view || o.kind == trigger {
			out = append(out, Declared{string(o.kind), o.name, o.sql, o.file, o.line, granted[o.name]})
		}
	}
	return out
}

// Dropped lists the objects, as kind and name, of earlier releases that this one does not have.
func (r *Release) Dropped() []string {
	var out []string
	for _, o := range r.dropped {
		out = append(out, o.String())
	}
	return out
}

// Version returns the number of the newest migration.
func (r *Release) Version() int32 { return r.version() }

// SQL returns the text that Up runs on an empty database, in order, with roles of this prefix, for
// a database administrator to read. An administrator who runs it, in one transaction, must run Up
// afterwards to record the installed objects.
func (r *Release) SQL(rolePrefix string) (string, error) {
	if err := checkPrefix(rolePrefix); err != nil {
		return "", err
	}
	set := roleSet{rolePrefix}
	var b strings.Builder
	section := func(title, sql string) {
		text, _ := expand(sql, set) // Load has checked it
		fmt.Fprintf(&b, "-- %s\n%s\n\n", title, strings.TrimSpace(text))
	}
	fmt.Fprintf(&b, "-- What qtop migrate up runs on an empty database, in one transaction: version %d, code %d (%s).\n"+
		"-- If you run it by hand (psql -1), run qtop migrate up afterwards, which records what is installed.\n\n",
		r.Version(), r.Code, r.Hash)
	section("roles", rolesSQL)
	section("version", bookSQL+"\n"+identifySQL+"\n"+rowSQL+fmt.Sprintf("\nUPDATE %s SET version = %d;\n", versionTable, r.Version())+bookRightsSQL)
	section("everything below belongs to "+set.owner(), set.assume()+";\n"+
		"SET LOCAL search_path = pg_catalog, pg_temp;\nSET LOCAL check_function_bodies = off;")
	for _, m := range r.migrations {
		section("migrations/"+m.name+".sql", m.up)
	}
	section("published tables", identifySQL)
	for _, o := range r.objects {
		section(fmt.Sprintf("%s (%s:%d)", o, o.file, o.line), o.install())
	}
	section("the roles that it uses", recordRolesSQL())
	section("seeds.sql", r.seeds)
	for _, m := range r.moves {
		section("moves/"+m.name+".sql, repeat until it changes no row", m.sql)
	}
	return b.String(), nil
}
