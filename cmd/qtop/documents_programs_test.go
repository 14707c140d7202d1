package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// program returns a shell command that runs a program block of a document in
// the reader's folder. Go is built within this module; Python and JavaScript
// are interpreted. lack names what the machine lacks to run the block, wrong
// is the error of the compiler.
func (r *reader) program(t *testing.T, b docBlock) (command, lack, wrong string) {
	t.Helper()
	file := filepath.Join(r.dir, fmt.Sprintf("line%d%s", b.line, map[string]string{"go": ".go", "python": ".py", "js": ".mjs"}[b.lang]))
	require.NoError(t, os.WriteFile(file, []byte(b.text), 0o600))
	switch b.lang {
	case "go":
		binary := strings.TrimSuffix(file, ".go")
		if out, err := exec.CommandContext(t.Context(), "go", "vet", file).CombinedOutput(); err != nil {
			return "", "", string(out)
		}
		if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, file).CombinedOutput(); err != nil {
			return "", "", string(out)
		}
		return binary, "", ""
	case "python":
		var modules []string
		for _, m := range imports.FindAllStringSubmatch(b.text, -1) {
			modules = append(modules, m[1])
		}
		for _, python := range []string{"python3", "/usr/bin/python3"} {
			if exec.CommandContext(t.Context(), python, "-c", "import "+strings.Join(modules, ", ")).Run() == nil {
				return python + " " + file, "", ""
			}
		}
		return "", "no python3 here that has " + strings.Join(modules, ", "), ""
	default:
		if _, err := exec.LookPath("node"); err != nil {
			return "", "no node here", ""
		}
		return "node " + file, "", ""
	}
}

// withLanguage matches a mark that also names a language. (A mark is the
// comment above a block; documents_test.go lists them.)
var withLanguage = regexp.MustCompile(`^(?:(.*), )?with (python|js)$`)

var imports = regexp.MustCompile(`(?m)^(?:import|from) ([a-z0-9_]+)`)

// asShell returns an sh block that runs the program block b. If the machine
// lacks something for it, run is false, a skipped subtest says what, and
// r.lacks remembers the language.
func (r *reader) asShell(t *testing.T, b docBlock) (_ docBlock, run bool, wrong string) {
	t.Helper()
	switch b.lang {
	case "go", "python", "js":
	default:
		return b, true, ""
	}
	command, lack, wrong := r.program(t, b)
	if lack != "" {
		r.lacks = append(r.lacks, b.lang)
		t.Run(fmt.Sprintf("line %d in %s", b.line, b.lang), func(t *testing.T) { t.Skip(lack) })
		return b, false, ""
	}
	b.lang, b.text = "sh", command+"\n"
	return b, wrong == "", wrong
}

// addresses matches the addresses on which programs of the documents listen.
var addresses = regexp.MustCompile(`127\.0\.0\.1:91\d\d\b`)

// address returns a free address to use instead of an address in the
// documents; the same one each time.
func (r *reader) address(t *testing.T, a string) string {
	t.Helper()
	if r.free[a] == "" {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		r.free[a] = l.Addr().String()
		require.NoError(t, l.Close())
	}
	return r.free[a]
}

// The tests of documents notice a program that does not compile, one that
// fails, and a language that the machine lacks. Blocks that need a program
// which cannot run here are left out too.
func TestDocumentProgramsAreRun(t *testing.T) {
	t.Parallel()
	r := &reader{dir: t.TempDir()}
	_, _, wrong := r.program(t, docBlock{lang: "go", text: "package main\n\nfunc main() { undefined() }\n"})
	require.Contains(t, wrong, "undefined")
	command, lack, wrong := r.program(t, docBlock{lang: "go", line: 7, text: "package main\n\nfunc main() { panic(\"seven\") }\n"})
	require.Empty(t, lack+wrong)
	out, err := exec.CommandContext(t.Context(), command).CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "seven")
	_, lack, _ = r.program(t, docBlock{lang: "python", text: "import nosuchmodule_\n"})
	require.Contains(t, lack, "nosuchmodule_")

	rule, err := docBlock{mark: "within 20 s, with python"}.rule()
	require.NoError(t, err)
	require.Equal(t, "python", rule.with)
	require.Positive(t, rule.within)
	for mark, with := range map[string]string{"stays running": "", "with js": "js", "not run: it ends, with care": ""} {
		rule, err = docBlock{mark: mark}.rule()
		require.NoError(t, err, mark)
		require.Equal(t, with, rule.with, mark)
	}
}
