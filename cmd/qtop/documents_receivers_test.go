package main

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// receivers calls test with each receiver of docs/webhooks.md, in every language of this machine.
// command is the program, address where it listens.
func receivers(t *testing.T, test func(t *testing.T, command []string, address string)) {
	t.Helper()
	found := 0
	for _, b := range documents(t)["webhooks.md"] {
		if b.lang != "python" && b.lang != "js" && b.lang != "go" {
			continue
		}
		found++
		t.Run(b.lang, func(t *testing.T) {
			t.Parallel()
			r := &reader{dir: t.TempDir(), free: map[string]string{}}
			address := r.address(t, addresses.FindString(b.text))
			b.text = addresses.ReplaceAllLiteralString(b.text, address)
			command, lack, wrong := r.program(t, b)
			if lack != "" {
				t.Skip(lack)
			}
			require.Empty(t, wrong)
			test(t, strings.Fields(command), address)
		})
	}
	require.Equal(t, 3, found)
}

// A receiver with an empty or short key would accept what anybody signs: it does not start.
func TestReceiversRefuseWeakSecrets(t *testing.T) {
	t.Parallel()
	good := base64.StdEncoding.EncodeToString(bytes.Repeat([]byte("k"), 24))
	short := base64.StdEncoding.EncodeToString(bytes.Repeat([]byte("k"), 23))
	receivers(t, func(t *testing.T, command []string, _ string) {
		for _, secret := range []string{"", " \n", "whsec_", "whsec_" + short, good + " whsec_"} {
			ctx, cancel := context.WithTimeout(t.Context(), patience) // an accepted secret: it would stay
			cmd := exec.CommandContext(ctx, command[0], command[1:]...)
			cmd.Env = append(cmd.Environ(), "ACME_SECRET="+secret)
			out, err := cmd.CombinedOutput()
			cancel()
			require.Error(t, err)
			require.Equal(t, 1, cmd.ProcessState.ExitCode(), "%q: %s", secret, out)
			require.Contains(t, string(out), "ACME_SECRET", "%q", secret)
		}
	})
}

// Whatever strangers send, a receiver refuses it and goes on.
func TestReceiversOutliveForgedRequests(t *testing.T) {
	t.Parallel()
	key := bytes.Repeat([]byte("k"), 32)
	body := `{"order": 4711}`
	signature := func(key []byte, id, sent string) string {
		mac := hmac.New(sha256.New, key)
		fmt.Fprintf(mac, "%s.%s.%s", id, sent, body)
		return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
	}
	receivers(t, func(t *testing.T, command []string, address string) {
		cmd := exec.CommandContext(t.Context(), command[0], command[1:]...)
		cmd.Env = append(cmd.Environ(), "ACME_SECRET=whsec_"+base64.StdEncoding.EncodeToString(key)+" \n") // as from a file
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		require.NoError(t, cmd.Start())
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		dial := func() net.Conn {
			for until := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) { // until it listens
				conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
				if err == nil {
					require.NoError(t, conn.SetDeadline(time.Now().Add(20*time.Second)))
					return conn
				}
				select {
				case err := <-ended:
					require.Fail(t, "the receiver ended", "%v: %s", err, out.String())
				default:
					require.True(t, time.Now().Before(until), "%v", err)
				}
			}
		}
		post := func(id, sent, signature string) int {
			require.NoError(t, dial().Close())
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+address+"/in", strings.NewReader(body))
			require.NoError(t, err)
			req.Close = true
			for name, value := range map[string]string{"webhook-id": id, "webhook-timestamp": sent, "webhook-signature": signature, "webhook-event-type": "order.paid"} {
				req.Header.Set(name, value)
			}
			resp, err := http.DefaultClient.Do(req)
			require.NoError(t, err, "%s", signature)
			defer func() { _ = resp.Body.Close() }()
			return resp.StatusCode
		}
		now := strconv.FormatInt(time.Now().Unix(), 10)
		require.Equal(t, http.StatusNoContent, post("first", now, signature(key, "first", now)))
		for name, given := range map[string]string{
			"the empty key":       signature(nil, "forged", now),
			"a byte of no ASCII":  "v1," + strings.Repeat("A", 43) + "\xe9",
			"the length in bytes": "v1," + strings.Repeat("A", 42) + "\xe9",
			"none":                "",
		} {
			require.Equal(t, http.StatusUnauthorized, post("forged", now, given), name)
		}

		broken := dial() // a sender that breaks off within its body
		_, err := fmt.Fprintf(broken, "POST /in HTTP/1.1\r\nHost: %s\r\nContent-Length: 100\r\nwebhook-id: broken\r\n\r\n{\"order\"", address)
		require.NoError(t, err)
		tcp, ok := broken.(*net.TCPConn)
		require.True(t, ok)
		require.NoError(t, tcp.CloseWrite())
		_, _ = io.ReadAll(broken) // until the receiver has noticed
		require.NoError(t, broken.Close())

		require.Equal(t, http.StatusNoContent, post("last", now, signature(key, "last", now)))
		select {
		case err := <-ended:
			require.Fail(t, "the receiver ended", "%v: %s", err, out.String())
		default:
		}
	})
}
