package main

import (
	"encoding/json"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// keysFile lists the keys of every verb's answer with the JSON types of their values, one key per line.
const keysFile = "testdata/json_keys.txt"

// stored are keys whose value is JSON as it is stored; qtop does not determine its keys.
var stored = []string{"payload", "progress", "before", "after", "last_result"}

// keyTypes has the JSON types that the values of a key have, by the path of the key, such as
// [].executors[].id. A path that ends in [] has those of the elements of a list that are no objects.
type keyTypes map[string]map[string]bool

// add records all keys in v, which is the value at path.
func (k keyTypes) add(v any, path string) {
	switch v := v.(type) {
	case map[string]any:
		for name, member := range v {
			if slices.Contains(stored, name) {
				_, text := member.(string)
				k.record(path+"."+name, map[bool]string{true: "string", false: "any"}[text])
				continue
			}
			k.record(path+"."+name, jsonType(member))
			k.add(member, path+"."+name)
		}
	case []any:
		for _, member := range v {
			if _, object := member.(map[string]any); !object {
				k.record(path+"[]", jsonType(member))
			}
			k.add(member, path+"[]")
		}
	}
}

func (k keyTypes) record(path, kind string) {
	path = strings.TrimPrefix(path, ".")
	if k[path] == nil {
		k[path] = map[string]bool{}
	}
	k[path][kind] = true
}

// keep adds the types of k to those of kept.
func (k keyTypes) keep(kept keyTypes) {
	for path, kinds := range k {
		for kind := range kinds {
			kept.record(path, kind)
		}
	}
}

func jsonType(v any) string {
	switch v.(type) {
	case nil:
		return "null"
	case bool:
		return "boolean"
	case float64:
		return "number"
	case string:
		return "string"
	case []any:
		return "array"
	}
	return "object"
}

// readKeys reads lines "VERB: KEY TYPE|TYPE…".
func readKeys(text string) keyTypes {
	kept := keyTypes{}
	for line := range strings.Lines(text) {
		i := strings.LastIndex(line, " ")
		for kind := range strings.SplitSeq(strings.TrimSpace(line[i+1:]), "|") {
			kept.record(line[:i], kind)
		}
	}
	return kept
}

func (k keyTypes) String() string {
	var text strings.Builder
	for _, path := range slices.Sorted(maps.Keys(k)) {
		text.WriteString(path + " " + strings.Join(slices.Sorted(maps.Keys(k[path])), "|") + "\n")
	}
	return text.String()
}

// promises returns what is wrong with the answers of this run, given the list that is kept.
func promises(kept, answered keyTypes) (wrong []string) {
	for path := range kept {
		if answered[path] == nil && !strings.HasSuffix(path, "[]") { // a list of values may be empty
			wrong = append(wrong, path+" is gone: a key that exists is never renamed or removed")
		}
	}
	for path, kinds := range answered {
		for kind := range kinds {
			switch name := path[strings.LastIndexAny(path, ". ")+1:]; {
			case kept[path] == nil:
				wrong = append(wrong, path+" is new, and a promise: run go test ./cmd/qtop -run TestEveryVerbSpeaksJSON -update")
			case kind == "null" && (kept[path]["number"] || timeKeys.MatchString(name)): // unknown, or does not apply
			case !kept[path][kind]:
				wrong = append(wrong, path+" is "+kind+" here: a key that exists never gets another type")
			}
		}
	}
	slices.Sort(wrong)
	return slices.Compact(wrong)
}

// requireKeys compares the answers with what keysFile promises. With -update it adds keys to the file,
// and a second type of a key; it removes nothing: a line that is to go is deleted by hand, with a line
// "Changed" in CHANGELOG.md.
func requireKeys(t *testing.T, answered keyTypes) {
	t.Helper()
	text, err := os.ReadFile(keysFile)
	require.NoError(t, err)
	kept := readKeys(string(text))
	if *update {
		answered.keep(kept)
		require.NoError(t, os.WriteFile(keysFile, []byte(kept.String()), 0o600))
	}
	require.Empty(t, strings.Join(promises(kept, answered), "\n"))
	for path, kinds := range kept {
		delete(kinds, "null")
		require.LessOrEqual(t, len(kinds), 1, "%s has several types: %v", path, slices.Sorted(maps.Keys(kinds)))
	}
}

var (
	timeKeys = regexp.MustCompile(`(_at|_until|_since)$|^(since|until|as_of)$`)
	unitKeys = regexp.MustCompile(`_(seconds|ms|bytes|percent)$`)
)

// requireUnits checks the units that the names of keys promise: times are RFC 3339 in UTC, measures are
// numbers; null where there is none.
func requireUnits(t *testing.T, v any, path string) {
	t.Helper()
	switch v := v.(type) {
	case map[string]any:
		for name, member := range v {
			text, _ := member.(string)
			switch {
			case slices.Contains(stored, name):
				continue
			case member != nil && timeKeys.MatchString(name):
				at, err := time.Parse(time.RFC3339Nano, text)
				require.NoError(t, err, "%s.%s is %v", path, name, member)
				require.Equal(t, time.UTC, at.Location(), "%s.%s is %s", path, name, text)
			case member != nil && unitKeys.MatchString(name):
				require.Equal(t, "number", jsonType(member), "%s.%s is %v", path, name, member)
			}
			requireUnits(t, member, path+"."+name)
		}
	case []any:
		for _, member := range v {
			requireUnits(t, member, path+"[]")
		}
	}
}

// A key that is gone, a new key and another type are each noticed; another value of the same type, and
// a number that is unknown, are not.
func TestPromisesOfKeysAreCompared(t *testing.T) {
	t.Parallel()
	kept := readKeys("dlq: [].id string\ndlq: [].n number\ndlq: [].names array\ndlq: [].names[] string\n")
	require.Equal(t, kept, readKeys(kept.String()))
	for answer, want := range map[string]string{
		`[{"id": "1", "n": 5, "names": ["a"]}]`:           "",
		`[{"id": "", "n": null, "names": ["a"]}]`:         "",
		`[{"n": 5, "names": ["a"]}]`:                      "dlq: [].id is gone",
		`[{"id": "1", "n": 5, "names": []}]`:              "",
		`[{"id": "1", "n": 5, "names": null}]`:            "dlq: [].names is null here",
		`[{"id": 1, "n": 5, "names": ["a"]}]`:             "dlq: [].id is number here",
		`[{"id": null, "n": 5, "names": ["a"]}]`:          "dlq: [].id is null here",
		`[{"id": "1", "n": 5, "names": [{"name": "a"}]}]`: "dlq: [].names[].name is new",
		`[{"id": "1", "n": 5, "names": [7]}]`:             "dlq: [].names[] is number here",
		`[{"id": "1", "n": 5, "names": ["a"], "x": 1}]`:   "dlq: [].x is new",
	} {
		answered := keyTypes{}
		var v any
		require.NoError(t, json.Unmarshal([]byte(answer), &v))
		answered.add(v, "")
		named := keyTypes{}
		for path, kinds := range answered {
			named["dlq: "+path] = kinds
		}
		wrong := strings.Join(promises(kept, named), "\n")
		if want == "" {
			require.Empty(t, wrong, answer)
		}
		require.Contains(t, wrong, want, answer)
	}
}

// Keys are words of the glossary: attempt, not try, and a subscription, not a rule. Names of released
// versions stay, and docs/json.md lists them.
func TestKeysAreWordsOfTheGlossary(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(keysFile)
	require.NoError(t, err)
	document, err := os.ReadFile("../../docs/json.md")
	require.NoError(t, err)
	kept := map[string]bool{"tries": true, "next_try_at": true, "rules": true}
	for _, word := range regexp.MustCompile(`[a-z_]+`).FindAllString(string(text), -1) {
		parts := strings.Split(word, "_")
		if slices.ContainsFunc([]string{"try", "tries", "rules", "letter", "letters", "places"}, func(w string) bool { return slices.Contains(parts, w) }) {
			require.True(t, kept[word], "%s is not a word of the glossary", word)
			require.Contains(t, string(document), "`"+word+"`")
		}
	}
}
