// Command lint checks the text of the schema: `make lint` runs it.
//
//	go run ./pgclient/schema/lint                 every check, a line per problem
//	go run ./pgclient/schema/lint -freeze X.Y.Z   in the commit of release X.Y.Z: write released.txt
package main

import (
	"flag"
	"fmt"
	"os"
)

func main() {
	dir := flag.String("dir", "pgclient/schema", "folder of the schema")
	release := flag.String("freeze", "", "write released.txt: this tree is the release of this number")
	flag.Parse()
	fsys := os.DirFS(*dir)
	problems := check(fsys)
	if *release != "" {
		text, err := frozen(fsys, *release)
		if err == nil {
			err = os.WriteFile(*dir+"/released.txt", []byte(text), 0o644) //nolint:gosec // a source file
		}
		if err != nil {
			problems = []string{err.Error()}
		} else {
			problems = check(fsys)
		}
	}
	for _, p := range problems {
		fmt.Fprintln(os.Stderr, p)
	}
	if len(problems) > 0 {
		os.Exit(1)
	}
}
