package queue

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// SafeURL removes credentials, query and fragment of a URL, which may be secrets, and keeps the
// rest, which names the destination.
func TestSafeURL(t *testing.T) {
	for raw, want := range map[string]string{
		"https://hooks.acme.example/in":                       "https://hooks.acme.example/in",
		"https://user:hush@hooks.acme.example:8443/in?t=hush": "https://•••@hooks.acme.example:8443/in?•••",
		"https://hush@host":                                   "https://•••@host",
		"https://host?hush":                                   "https://host?•••",
		"https://host/p#hush":                                 "https://host/p#•••",
		"https://a@hush@host/x@y":                             "https://•••@host/x@y",
		"https://u:p/ss@host/x":                               "https://•••@host/x", "https://u:p?ss@host": "https://•••@host", "https://[::1]:8443/x": "https://[::1]:8443/x",
		"not a url":                    "not a url",
		"https://host/\x1b[2Jp?t=hush": "https://host/␛[2Jp?•••",
	} {
		require.Equal(t, want, SafeURL(raw).String(), raw)
	}
}
