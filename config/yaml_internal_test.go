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
