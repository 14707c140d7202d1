package sender

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/qtop/qtop/pgclient/fileguard"
	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/pgclient/queue/secrecy"
)

const (
	secretPrefix = "whsec_"
	// maxSecretFile is the greatest size of a secret file in bytes; a few secrets need far less.
	maxSecretFile = 64 << 10
	// secretFresh is how long the content of a file is used before the file is read again: not
	// each of thousands of deliveries opens the file, and a rotated secret is used without a
	// restart.
	secretFresh = time.Second
	// secretFileWait is how long a read of a secret file is waited for: a network file system can hang,
	// and the read with it. Until that read ends there is no other one of that file. After
	// secretFileSlow all files are read, so that several that hang are waited for together.
	secretFileWait = 2 * time.Second
	secretFileSlow = 100 * time.Millisecond
	// leastKey and mostKey are the shortest and longest secret in bytes, as in Standard Webhooks.
	// A secret outside these bounds causes a warning in this release. In the next release
	// refuseWeak is set, and then such a secret is refused.
	leastKey, mostKey = 24, 64
	refuseWeak        = false
)

// SecretSource maps the secret_ref of a webhook subscription (Ref) to the source of its secret:
// From is env:NAME or file:PATH with an absolute path.
type SecretSource struct{ Ref, From string }

// Secrets resolves secret references. A secret is in an environment variable or in a file, never
// in the database, and no error text contains a secret. Secrets is safe for concurrent use.
type Secrets struct{ byRef map[string][]*secretEntry }

type secretEntry struct {
	env, file string // one of them is set

	mu      sync.Mutex
	keys    [][]byte
	readAt  time.Time
	refresh time.Duration
	read    func(path string) (string, *Fault) // readSecretFile
	reading chan secretFile                    // of the read under way, nil = none
	began   time.Time                          // when it began
}

type secretFile struct {
	value string
	fault *Fault
}

var (
	envName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	visible = regexp.MustCompile(`^[!-~]+$`)
)

// NewSecrets checks the form of every source and returns all problems in one error, which joins them:
// each is one line and a *queue.Error of KindConfig. It does not read the sources, because a secret that is missing now may exist when it is needed. If a ref
// has two sources, the secrets of both sign.
func NewSecrets(src []SecretSource) (*Secrets, error) {
	s := &Secrets{byRef: make(map[string][]*secretEntry, len(src))}
	var problems []error
	for i, source := range src {
		entry, what, do := parseSource(source)
		if what != "" {
			problems = append(problems, queue.NewError(queue.KindConfig, what, fmt.Sprintf("delivery.secrets, entry %d, ref %s", i+1, shownRef(source.Ref)), do))
			continue
		}
		s.byRef[source.Ref] = append(s.byRef[source.Ref], entry)
	}
	if len(problems) > 0 {
		return nil, errors.Join(problems...)
	}
	return s, nil
}

// parseSource returns the source, or what is wrong with it and what to do. The text of the source is
// not repeated: it may be a secret in the wrong place.
func parseSource(source SecretSource) (entry *secretEntry, what, do string) {
	if len(source.Ref) > 255 || !visible.MatchString(source.Ref) || strings.Contains(source.Ref, secretPrefix) {
		return nil, "this is no ref of a secret", "use 1 to 255 visible ASCII characters, and not the secret itself"
	}
	kind, value, _ := strings.Cut(source.From, ":")
	if strings.Contains(value, secretPrefix) {
		return nil, "the value of from contains a secret", "name the variable or file that contains it instead"
	}
	entry = &secretEntry{refresh: secretFresh, read: readSecretFile}
	switch kind {
	case "env":
		if !envName.MatchString(value) {
			return nil, "what follows env: is not a variable name", "use letters, digits and _"
		}
		entry.env = value
	case "file":
		if !filepath.IsAbs(value) {
			return nil, "what follows file: is not an absolute path", "write the path from /"
		}
		entry.file = value
	default:
		return nil, "the value of from is neither env:NAME nor file:PATH", "use one of them"
	}
	return entry, "", ""
}

// Fault is the reason why this host cannot sign with a reference (What), and the remedy (Do). It
// contains no secret.
type Fault struct {
	What, Do string
	lack     bool // the file may be as before: this host cannot read it at present
}

// Error returns both as one line.
func (f *Fault) Error() string { return f.What + ": " + f.Do }

func faultf(do, format string, args ...any) *Fault {
	return &Fault{What: fmt.Sprintf(format, args...), Do: do}
}

// Look returns the secrets for ref, at least one, or a Fault. The value of a source is one or
// more secrets separated by white space, each in standard base64 with or without the prefix
// whsec_, the format of the reference library of Standard Webhooks. The first is the current
// secret; during a rotation all of them sign.
func (s *Secrets) Look(ref string) ([][]byte, *Fault) {
	entries := s.of(ref)
	if len(entries) == 0 {
		return nil, faultf("add {ref, from: env:NAME or file:PATH} to delivery.secrets on this host", "secret_ref %s is not in delivery.secrets", shownRef(ref))
	}
	var all [][]byte
	for _, entry := range entries {
		keys, fault := entry.resolve(s.readAll)
		if fault != nil {
			return nil, faultf(fault.Do, "secret_ref %s: %s", shownRef(ref), fault.What)
		}
		all = append(all, keys...)
	}
	return all, nil
}

func (s *Secrets) of(ref string) []*secretEntry {
	if s == nil {
		return nil
	}
	return s.byRef[ref]
}

// Refs returns the references for which this host has sources.
func (s *Secrets) Refs() []string {
	if s == nil {
		return nil
	}
	return slices.Sorted(maps.Keys(s.byRef))
}

// Usable returns the references with which this host can sign now, sorted; never nil.
func (s *Secrets) Usable() []string {
	usable := []string{}
	for _, ref := range s.Refs() {
		if _, fault := s.Look(ref); fault == nil {
			usable = append(usable, ref)
		}
	}
	return usable
}

// Weak returns the fault in the length of the secrets for ref, which are used nevertheless; nil
// if their length is right, 24 to 64 bytes. The next release refuses such secrets.
func (s *Secrets) Weak(ref string) *Fault {
	keys, fault := s.Look(ref)
	if fault != nil {
		return nil
	}
	return weak(ref, keys)
}

func weak(ref string, keys [][]byte) *Fault {
	for i, key := range keys {
		if len(key) < leastKey || len(key) > mostKey {
			return faultf(fmt.Sprintf("make a new one of %d to %d bytes: openssl rand -base64 32; the next release refuses this one", leastKey, mostKey),
				"secret_ref %s: secret %d of %d has %s, not %d to %d", shownRef(ref), i+1, len(keys), queue.Plural(len(key), "byte", "bytes"), leastKey, mostKey)
		}
	}
	return nil
}

// readAll begins to read all files whose content is not fresh.
func (s *Secrets) readAll() {
	for _, entries := range s.byRef {
		for _, e := range entries {
			if e.file != "" && e.mu.TryLock() { // locked: it is being read
				if e.keys == nil || time.Since(e.readAt) >= e.refresh {
					e.begin()
				}
				e.mu.Unlock()
			}
		}
	}
}

// resolve returns the keys of the entry. It calls slow if its file takes long to read.
func (e *secretEntry) resolve(slow func()) ([][]byte, *Fault) {
	if e.env != "" {
		value, ok := os.LookupEnv(e.env)
		if !ok {
			return nil, faultf("set it for the worker host and restart it, or name a file", "environment variable %s is not set", e.env)
		}
		return parseSecrets(value, "environment variable "+e.env)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.keys != nil && time.Since(e.readAt) < e.refresh {
		return e.keys, nil
	}
	value, fault := e.content(slow)
	if fault != nil && fault.lack && e.keys != nil {
		return e.keys, nil // the file is there and may be as before
	}
	// When a file becomes unusable, signing stops at once: the old keys are not used any longer.
	e.keys = nil
	if fault != nil {
		return nil, fault
	}
	keys, fault := parseSecrets(value, "file "+e.file)
	if fault != nil {
		return nil, fault
	}
	e.keys, e.readAt = keys, time.Now()
	return keys, nil
}

// content returns the content of the file. A read that does not end in its time is a fault, for which the
// keys that are known are kept.
func (e *secretEntry) content(slow func()) (string, *Fault) {
	if e.reading != nil && time.Since(e.began) >= secretFileWait && len(e.reading) > 0 { // what it has read may be old
		<-e.reading
		e.reading = nil
	}
	e.begin()
	ctx, cancel := context.WithDeadline(context.Background(), e.began.Add(secretFileWait))
	defer cancel()
	defer time.AfterFunc(secretFileSlow, slow).Stop()
	select {
	case f := <-e.reading:
		e.reading = nil
		return f.value, f.fault
	case <-ctx.Done():
		return "", &Fault{What: fmt.Sprintf("file %s: a read of it does not end", e.file), Do: "repair the file system that it is on", lack: true}
	}
}

// begin begins to read the file, unless it is being read.
func (e *secretEntry) begin() {
	if e.reading != nil {
		return
	}
	e.reading, e.began = make(chan secretFile, 1), time.Now()
	go func(done chan<- secretFile) {
		value, fault := e.read(e.file)
		done <- secretFile{value, fault}
	}(e.reading)
}

func readSecretFile(path string) (string, *Fault) {
	failed := func(err error) *Fault {
		why := err
		var pe *fs.PathError
		if errors.As(err, &pe) {
			why = pe.Err
		}
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return faultf("write the secret there, mode 0600", "file %s does not exist", path)
		case errors.Is(err, fs.ErrPermission):
			return faultf("make the worker host's user its owner: chown USER "+path, "file %s may not be read", path)
		}
		if s := find(err, ofFiles()); s != nil {
			return &Fault{What: fmt.Sprintf("file %s: %s", path, s.what), Do: s.do, lack: true}
		}
		return faultf("correct the path or the file", "file %s: %v", path, why)
	}
	// Check the file before opening it, because opening a pipe would block. Stat follows symbolic
	// links: containers mount secrets that way.
	info, err := os.Stat(path)
	if err != nil {
		return "", failed(err)
	}
	if !info.Mode().IsRegular() {
		return "", faultf("name a file that holds the secret", "%s is not a regular file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return "", failed(err)
	}
	defer func() { _ = f.Close() }()
	if info, err = f.Stat(); err != nil {
		return "", failed(err)
	}
	if f := fileguard.Secret(path, info); f != nil {
		return "", &Fault{What: f.What, Do: f.Do}
	}
	for _, f := range fileguard.Kept(path) { // anyone who may replace the file chooses the key
		if f.Refuse {
			return "", &Fault{What: f.What, Do: f.Do}
		}
	}
	content, err := io.ReadAll(io.LimitReader(f, maxSecretFile+1))
	if err != nil {
		return "", failed(err)
	}
	if len(content) > maxSecretFile {
		return "", faultf("keep only the secrets in it", "file %s is larger than 64 KiB", path)
	}
	return string(content), nil
}

func parseSecrets(value, from string) ([][]byte, *Fault) {
	fields := strings.Fields(value)
	if len(fields) == 0 {
		return nil, faultf("put the secret there: "+secretPrefix+" followed by standard base64", "%s is empty", from)
	}
	secrecy.Know(fields...)
	keys := make([][]byte, 0, len(fields))
	for i, field := range fields {
		key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(field, secretPrefix))
		if err != nil || len(key) == 0 {
			return nil, faultf("copy it whole, with its = at the end", "%s: secret %d of %d is not %s followed by standard base64", from, i+1, len(fields), secretPrefix)
		}
		if refuseWeak && (len(key) < leastKey || len(key) > mostKey) {
			return nil, weak(from, [][]byte{key})
		}
		keys = append(keys, key)
	}
	return keys, nil
}

// shownRef returns a ref for an error text. If somebody stored the secret itself in place of its
// reference, the returned text does not contain it.
func shownRef(ref string) string {
	if strings.Contains(ref, secretPrefix) {
		return "(a secret, not a reference)"
	}
	return fmt.Sprintf("%q", clean(ref, maxDetail))
}
