// Resolving secret references. A secret lives in the environment or in a file;
// it is never in the database, and no error here repeats one.
package sender

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"
)

const (
	secretPrefix = "whsec_"
	// maxSecretFile in bytes; a few secrets need far less.
	maxSecretFile = 64 << 10
	// secretFresh is how long a file's content is used before it is read again:
	// deliveries by the thousand need not each open it, and a rotated file is
	// taken up without a restart.
	secretFresh = time.Second
)

// SecretSource says where the secret behind a subscription's secret_ref is:
// From is env:NAME or file:PATH with an absolute path.
type SecretSource struct{ Ref, From string }

// Secrets resolves references. It is safe for concurrent use.
type Secrets struct{ byRef map[string][]*secretEntry }

type secretEntry struct {
	env, file string // one of the two

	mu      sync.Mutex
	keys    [][]byte
	readAt  time.Time
	refresh time.Duration
}

var (
	envName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	refName = regexp.MustCompile(`^[!-~]{1,255}$`)
)

// NewSecrets checks the form of every source and reports all problems at once.
// It reads none of them: one that is missing now may be there when needed. A ref
// that stands twice has both secrets, and both sign.
func NewSecrets(src []SecretSource) (*Secrets, error) {
	s := &Secrets{byRef: make(map[string][]*secretEntry, len(src))}
	var problems []error
	for i, source := range src {
		entry, err := parseSource(source)
		if err != nil {
			problems = append(problems, fmt.Errorf("delivery.secrets entry %d (ref %s): %w", i+1, shownRef(source.Ref), err))
			continue
		}
		s.byRef[source.Ref] = append(s.byRef[source.Ref], entry)
	}
	if len(problems) > 0 {
		return nil, errors.Join(problems...)
	}
	return s, nil
}

func parseSource(source SecretSource) (*secretEntry, error) {
	if !refName.MatchString(source.Ref) || strings.Contains(source.Ref, secretPrefix) {
		return nil, errors.New("the ref must be 1 to 255 visible ASCII characters and not a secret")
	}
	kind, value, _ := strings.Cut(source.From, ":")
	if strings.Contains(value, secretPrefix) {
		return nil, errors.New("from holds a secret itself; name the variable or file that holds it")
	}
	entry := &secretEntry{refresh: secretFresh}
	switch kind {
	case "env":
		if !envName.MatchString(value) {
			return nil, errors.New("what follows env: is not a variable name (letters, digits, _)")
		}
		entry.env = value
	case "file":
		if !filepath.IsAbs(value) {
			return nil, errors.New("what follows file: must be an absolute path")
		}
		entry.file = value
	default: // not repeated: it may be a secret put in the wrong place
		return nil, errors.New("from must be env:NAME or file:PATH")
	}
	return entry, nil
}

// Resolve returns the secrets behind ref, at least one. The value is one or
// more secrets separated by white space, each in standard base64 with or
// without the prefix whsec_, as the reference library of Standard Webhooks
// reads them. The first is the current one; all sign while rotating.
func (s *Secrets) Resolve(ref string) ([][]byte, error) {
	var entries []*secretEntry
	if s != nil {
		entries = s.byRef[ref]
	}
	if len(entries) == 0 {
		return nil, fmt.Errorf("secret_ref %s is not in delivery.secrets: add {ref, from: env:NAME or file:PATH} on this host", shownRef(ref))
	}
	var all [][]byte
	for _, entry := range entries {
		keys, err := entry.resolve()
		if err != nil {
			return nil, fmt.Errorf("secret_ref %s: %w", shownRef(ref), err)
		}
		all = append(all, keys...)
	}
	return all, nil
}

func (e *secretEntry) resolve() ([][]byte, error) {
	if e.env != "" {
		value, ok := os.LookupEnv(e.env)
		if !ok {
			return nil, fmt.Errorf("environment variable %s is not set", e.env)
		}
		return parseSecrets(value, "environment variable "+e.env)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.keys != nil && time.Since(e.readAt) < e.refresh {
		return e.keys, nil
	}
	// A file that went bad stops signing at once: no fall back to old keys.
	e.keys = nil
	value, err := readSecretFile(e.file)
	if err != nil {
		return nil, err
	}
	keys, err := parseSecrets(value, "file "+e.file)
	if err != nil {
		return nil, err
	}
	e.keys, e.readAt = keys, time.Now()
	return keys, nil
}

func readSecretFile(path string) (string, error) {
	// Before opening, which would block on a pipe. Symbolic links are followed:
	// that is how secrets are mounted into containers.
	info, err := os.Stat(path)
	if err != nil {
		return "", err // holds the path and the reason
	}
	if !info.Mode().IsRegular() {
		return "", fmt.Errorf("%s is not a regular file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	if info, err = f.Stat(); err != nil {
		return "", err
	}
	if mode := info.Mode().Perm(); mode&0o066 != 0 {
		return "", fmt.Errorf("%s has mode %04o, open to others than its owner: chmod 600 %s", path, mode, path)
	}
	content, err := io.ReadAll(io.LimitReader(f, maxSecretFile+1))
	if err != nil {
		return "", err
	}
	if len(content) > maxSecretFile {
		return "", fmt.Errorf("%s is larger than 64 KiB", path)
	}
	return string(content), nil
}

func parseSecrets(value, from string) ([][]byte, error) {
	fields := strings.Fields(value)
	if len(fields) == 0 {
		return nil, fmt.Errorf("%s is empty", from)
	}
	keys := make([][]byte, 0, len(fields))
	for i, field := range fields {
		key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(field, secretPrefix))
		if err != nil || len(key) == 0 {
			return nil, fmt.Errorf("%s: secret %d of %d is not %s followed by standard base64", from, i+1, len(fields), secretPrefix)
		}
		keys = append(keys, key)
	}
	return keys, nil
}

// shownRef quotes a ref for an error, unless somebody stored the secret itself
// where its reference belongs.
func shownRef(ref string) string {
	if strings.Contains(ref, secretPrefix) {
		return "(a secret, not a reference)"
	}
	return fmt.Sprintf("%q", clean(ref, maxDetail))
}
