package sender

import (
	"context"
	"encoding/base64"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stretchr/testify/require"
)

const sampleSecret = "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

func sampleKey() []byte {
	key, _ := base64.StdEncoding.DecodeString(sampleSecret)
	return key
}

func TestSecretSourcesAllProblemsAtOnce(t *testing.T) {
	_, err := NewSecrets([]SecretSource{
		{"good", "env:GOOD"},
		{"good", "env:AGAIN"},
		{"", "env:X"},
		{"a b", "env:X"},
		{"nokind", "hunter2hunter2"},
		{"pasted", "whsec_" + sampleSecret},
		{"pasted2", "env:whsec_abc"},
		{"whsec_" + sampleSecret, "env:X"},
		{"badenv", "env:A-B" + sampleSecret},
		{"noenv", "env:"},
		{"rel", "file:relative/path"},
		{"nofile", "file:"},
		{"upper", "ENV:X"},
	})
	require.Error(t, err)
	text := err.Error()
	require.Len(t, strings.Split(text, "\n"), 11, text)
	for _, ref := range []string{`"nokind"`, `"pasted"`, `"pasted2"`, `"badenv"`, `"noenv"`, `"rel"`, `"nofile"`, `"upper"`} {
		require.Contains(t, text, ref)
	}
	require.NotContains(t, text, sampleSecret)
	require.NotContains(t, text, "hunter2")
	require.NotContains(t, text, "abc")

	s, err := NewSecrets(nil)
	require.NoError(t, err)
	_, err = resolve(s, "any")
	require.ErrorContains(t, err, "delivery.secrets")
}

// resolve calls Look and returns its *Fault as an error: a nil *Fault in an
// error interface would not be nil.
func resolve(s *Secrets, ref string) ([][]byte, error) {
	keys, fault := s.Look(ref)
	if fault != nil {
		return nil, fault
	}
	return keys, nil
}

func TestSecretsFromEnvironment(t *testing.T) {
	s, err := NewSecrets([]SecretSource{{"r", "env:QTOP_TEST_SECRET"}})
	require.NoError(t, err)
	for _, c := range []struct {
		value string
		keys  [][]byte
	}{
		{"whsec_" + sampleSecret, [][]byte{sampleKey()}},
		{sampleSecret, [][]byte{sampleKey()}},
		{"  whsec_" + sampleSecret + "\n\twhsec_aGVsbG8=\r\n", [][]byte{sampleKey(), []byte("hello")}},
	} {
		t.Setenv("QTOP_TEST_SECRET", c.value)
		keys, err := resolve(s, "r")
		require.NoError(t, err)
		require.Equal(t, c.keys, keys)
	}
	for _, bad := range []string{"", " \n", "whsec_", "whsec_" + sampleSecret + "!", sampleSecret + "=", "hunter2", "aGVsbG8", "whsk_" + sampleSecret, "whsec_" + sampleSecret + " hunter2", "aGVsbG8_"} {
		t.Setenv("QTOP_TEST_SECRET", bad)
		_, err := resolve(s, "r")
		require.Error(t, err, bad)
		require.Contains(t, err.Error(), "QTOP_TEST_SECRET")
		require.Contains(t, err.Error(), `"r"`)
		require.NotContains(t, err.Error(), sampleSecret)
		require.NotContains(t, err.Error(), "hunter2")
		require.NotContains(t, err.Error(), "aGVsbG8")
	}
	require.NoError(t, os.Unsetenv("QTOP_TEST_SECRET"))
	_, err = resolve(s, "r")
	require.ErrorContains(t, err, "is not set")
}

func TestUnknownRef(t *testing.T) {
	s, err := NewSecrets([]SecretSource{{"r", "env:X"}})
	require.NoError(t, err)
	_, err = resolve(s, "other\x1b[2J\n")
	require.ErrorContains(t, err, "other")
	require.Equal(t, err.Error(), clean(err.Error(), 1000))
	_, err = resolve(s, "whsec_"+sampleSecret)
	require.Error(t, err)
	require.NotContains(t, err.Error(), sampleSecret)
	var none *Secrets
	_, err = resolve(none, "r")
	require.Error(t, err)
}

func TestSecretsFromFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "secret")
	write := func(text string, mode os.FileMode) {
		t.Helper()
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		require.NoError(t, os.Chmod(path, mode))
	}
	s, err := NewSecrets([]SecretSource{{"r", "file:" + path}})
	require.NoError(t, err)
	s.byRef["r"][0].refresh = 0
	_, err = resolve(s, "r")
	require.ErrorContains(t, err, "does not exist")

	for _, mode := range []os.FileMode{0o600, 0o400, 0o700, 0o711} {
		write("whsec_"+sampleSecret+"\nwhsec_aGVsbG8=\n", mode)
		keys, err := resolve(s, "r")
		require.NoError(t, err)
		require.Equal(t, [][]byte{sampleKey(), []byte("hello")}, keys)
		require.NoError(t, os.Chmod(path, 0o600))
	}
	for _, mode := range []os.FileMode{0o640, 0o604, 0o644, 0o620, 0o602, 0o666} {
		write("whsec_"+sampleSecret, mode)
		_, err := resolve(s, "r")
		require.ErrorContains(t, err, "chmod 600 "+path)
		require.NotContains(t, err.Error(), sampleSecret)
	}
	write("whsec_"+sampleSecret, 0o600)
	require.NoError(t, os.Chmod(filepath.Dir(path), 0o777)) //nolint:gosec // the fault that the test makes
	_, err = resolve(s, "r")
	require.ErrorContains(t, err, "chmod go-w "+filepath.Dir(path), "anyone who may replace the file chooses the key")
	require.NoError(t, os.Chmod(filepath.Dir(path), 0o700))
	_, err = resolve(s, "r")
	require.NoError(t, err)
	write("hunter2", 0o600)
	_, err = resolve(s, "r")
	require.ErrorContains(t, err, path)
	require.NotContains(t, err.Error(), "hunter2")
	write(strings.Repeat(sampleSecret+" ", 4096), 0o600)
	_, err = resolve(s, "r")
	require.ErrorContains(t, err, "64 KiB")

	require.NoError(t, os.Remove(path))
	require.NoError(t, os.Mkdir(path, 0o700))
	_, err = resolve(s, "r")
	require.ErrorContains(t, err, "regular")
	require.NoError(t, os.Remove(path))
	require.NoError(t, syscall.Mkfifo(path, 0o600))
	_, err = resolve(s, "r") // must not block
	require.ErrorContains(t, err, "regular")
}

// A rotated file is read again after secretFresh, and not before.
func TestSecretFileIsReadAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(path, []byte("aGVsbG8="), 0o600))
	s, err := NewSecrets([]SecretSource{{"r", "file:" + path}})
	require.NoError(t, err)
	entry := s.byRef["r"][0]
	entry.refresh = time.Hour
	first, err := resolve(s, "r")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, []byte(sampleSecret), 0o600))
	same, err := resolve(s, "r")
	require.NoError(t, err)
	require.Equal(t, first, same)
	entry.readAt = time.Now().Add(-2 * time.Hour)
	next, err := resolve(s, "r")
	require.NoError(t, err)
	require.Equal(t, [][]byte{sampleKey()}, next)
	// The file has become unreadable: Look fails at once and does not use the old keys.
	require.NoError(t, os.Chmod(path, 0o644))
	entry.readAt = time.Now().Add(-2 * time.Hour)
	_, err = resolve(s, "r")
	require.Error(t, err)
	require.Nil(t, entry.keys)
}

// A file system hangs: the first look-ups wait for it, all together no longer than one, a key that is known is used
// meanwhile, and when the file system answers again, the new content is used.
func TestSecretFileThatHangs(t *testing.T) {
	path := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(path, []byte(sampleSecret), 0o600))
	sources := []SecretSource{{"known", "file:" + path}}
	for i := range 20 {
		sources = append(sources, SecretSource{"new" + strconv.Itoa(i), "file:" + path})
	}
	s, err := NewSecrets(sources)
	require.NoError(t, err)
	_, fault := s.Look("known")
	require.Nil(t, fault)
	answers := make(chan struct{})
	for _, ref := range s.Refs() {
		entry := s.of(ref)[0]
		entry.refresh = 0
		entry.read = func(path string) (string, *Fault) {
			<-answers
			return readSecretFile(path)
		}
	}
	began := time.Now()
	require.Equal(t, []string{"known"}, s.Usable())
	require.Less(t, time.Since(began), 3*secretFileWait, "each file is waited for")
	for _, ref := range s.Refs() {
		for range 50 {
			keys, fault := s.Look(ref)
			if ref == "known" {
				require.Nil(t, fault)
				require.Equal(t, sampleKey(), keys[0])
				continue
			}
			require.NotNil(t, fault)
			require.Contains(t, fault.What, "a read of it does not end")
		}
	}
	require.Less(t, time.Since(began), 4*secretFileWait, "each look-up waits")
	require.NoError(t, os.WriteFile(path, []byte(base64.StdEncoding.EncodeToString([]byte(strings.Repeat("n", 32)))), 0o600))
	close(answers)
	for _, ref := range s.Refs() {
		require.Eventually(t, func() bool {
			keys, fault := s.Look(ref)
			return fault == nil && string(keys[0]) == strings.Repeat("n", 32)
		}, 10*time.Second, time.Millisecond, ref)
	}
}

// A delivery that is signed with a resolved reference can be verified.
func TestResolvedSecretSigns(t *testing.T) {
	t.Setenv("QTOP_TEST_SECRET", "whsec_"+sampleSecret+" whsec_aGVsbG8=")
	secrets, err := NewSecrets([]SecretSource{{"r", "env:QTOP_TEST_SECRET"}})
	require.NoError(t, err)
	keys, err := resolve(secrets, "r")
	require.NoError(t, err)
	srv, got := recorder(t)
	r := request(srv.URL)
	r.Secrets = keys
	require.True(t, newSender(t, Config{Allow: loopback()}).Send(context.Background(), r).Delivered)
	for _, secret := range []string{"whsec_" + sampleSecret, "whsec_aGVsbG8="} {
		wh, err := standardwebhooks.NewWebhook(secret)
		require.NoError(t, err)
		require.NoError(t, wh.Verify(got()[0].body, got()[0].header))
	}
}

// A ref with two sources has the secrets of both, for rotation.
func TestRefTwice(t *testing.T) {
	t.Setenv("QTOP_TEST_OLD", sampleSecret)
	t.Setenv("QTOP_TEST_NEW", "aGVsbG8=")
	secrets, err := NewSecrets([]SecretSource{{"r", "env:QTOP_TEST_NEW"}, {"r", "env:QTOP_TEST_OLD"}})
	require.NoError(t, err)
	keys, err := resolve(secrets, "r")
	require.NoError(t, err)
	require.Len(t, keys, 2)
	require.Equal(t, "hello", string(keys[0]))
}
