package config

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// What the YAML library quotes may be a password, with any characters in it.
func TestYAMLErrorsQuoteNothing(t *testing.T) {
	for _, text := range []string{
		"? {refresh: \"postgres:/ /\\nu:>\\tHY5R\\x7f ?@1/d\", a: tr\"ux}\n: x\n",
		"? [a, \"HY5R'1\"]\n: x\n",
		"dsn: *HY5R\n",
		"\"HY\\\"5R\": 1\n\"HY\\\"5R\": 2\n",
		"a: &HY5R [*HY5R]\n",
		"a: !!int \"HY5R`x'\"\n",
		"a: !!int \"`HY5R\"\nb: !!int \"HY5R`\"\n",
	} {
		var into map[string]any
		err := yaml.Unmarshal([]byte(text), &into)
		require.Error(t, err, text)
		said := notYAML(err)
		require.NotContains(t, said.what, "5R", text)
		require.NotContains(t, said.what, "HY", text)
		require.Contains(t, said.what, "is not valid YAML: ")
	}
}

// An error of the file says what is wrong, in which line, and shows no key that may be a password.
func TestYAMLErrorsSayWhat(t *testing.T) {
	for text, want := range map[string]yamlError{
		"\tdsn: service=a\n":                                 {"found character that cannot start any token: a tab is in front of it, where only spaces may be", 1},
		"# a\ndelivery:\n  \tper_endpoint: 4\n":              {"found character that cannot start any token: a tab is in front of it, where only spaces may be", 3},
		"theme: dark\ndsn: @home\n":                          {"a value that begins with @, %, a backquote or a tab needs quotes", 2},
		"dsn: service=a\ntheme: dark\ndsn: service=b\n":      {`"dsn" is set twice, first in line 1`, 3},
		"profiles:\n  a: {theme: dark,\n    theme: light}\n": {`"theme" is set twice, first in line 2`, 3},
		"HY/5R: 1\nHY/5R: 2\n":                               {"a key is set twice, first in line 1", 2},
		"- dsn\n- theme\n":                                   {"the configuration file holds a list and no keys, such as dsn: service=prod", 1},
		"\nservice=prod\n":                                   {"the configuration file holds text and no keys, such as dsn: service=prod", 2},
	} {
		_, _, bad := decodeYAML([]byte(text))
		require.NotNil(t, bad, text)
		require.Contains(t, bad.what, want.what, text)
		require.Equal(t, want.line, bad.line, text)
	}
	for _, text := range []string{"", "# a\n", "---\n", "~\n", "a: &x {theme: dark}\nb:\n  <<: *x\n"} {
		_, _, bad := decodeYAML([]byte(text))
		require.Nil(t, bad, text)
	}
}
