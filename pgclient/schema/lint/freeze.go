package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strings"

	"github.com/qtop/qtop/pgclient/schema"
)

const frozenHead = `# What the last release contained; make lint compares the schema with it.
# Written in the commit of a release: go run ./pgclient/schema/lint -freeze X.Y.Z

`

var releaseNumber = regexp.MustCompile(`^\d+\.\d+\.\d+$`)

func checksum(fsys fs.FS, migration string) (string, error) {
	b, err := fs.ReadFile(fsys, "migrations/"+migration)
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])[:16], err
}

// frozen is the text of released.txt for the schema in fsys as the release of this number.
func frozen(fsys fs.FS, release string) (string, error) {
	if !releaseNumber.MatchString(release) {
		return "", fmt.Errorf("%q is no number of a release, such as 1.2.3", release)
	}
	r, err := schema.Load(fsys)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	b.WriteString(frozenHead)
	fmt.Fprintf(&b, "release %s\ncode %d %s\n\n", release, r.Code, r.Hash)
	names, err := fs.Glob(fsys, "migrations/*.sql")
	if err != nil {
		return "", err
	}
	for _, name := range names {
		name = strings.TrimPrefix(name, "migrations/")
		sum, err := checksum(fsys, name)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&b, "migration %s %s\n", name, sum)
	}
	var objects []string
	for _, d := range r.Declared() {
		line := d.Kind + " " + d.Name
		var marks []string
		if d.Granted {
			marks = append(marks, "granted")
		}
		if d.File == retiredFile {
			marks = append(marks, "retired")
		}
		if len(marks) > 0 {
			line += ": " + strings.Join(marks, " ")
		}
		objects = append(objects, line)
	}
	slices.Sort(objects)
	b.WriteString("\n" + strings.Join(objects, "\n") + "\n")
	return b.String(), nil
}
