// Tests of receivers with wrong certificates and broken handshakes.
package sender

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// authority signs certificates of receivers.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T, signer *authority, change func(*x509.Certificate)) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	require.NoError(t, err)
	c := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "test"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, BasicConstraintsValid: true,
	}
	change(c)
	parent, parentKey := c, key
	if signer != nil {
		parent, parentKey = signer.cert, signer.key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, parentKey)
	require.NoError(t, err)
	cert, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	return &authority{cert, key}
}

func TestBadCertificates(t *testing.T) {
	ca := func(c *x509.Certificate) { c.IsCA = true }
	trusted, stranger := newAuthority(t, nil, ca), newAuthority(t, nil, ca)
	host := func(change func(*x509.Certificate)) func(*x509.Certificate) {
		return func(c *x509.Certificate) {
			c.DNSNames = []string{"hook.example"}
			c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
			if change != nil {
				change(c)
			}
		}
	}
	roots := x509.NewCertPool()
	roots.AddCert(trusted.cert)
	s := newSender(t, Config{Allow: loopback(), RootCAs: roots, Lookup: func(context.Context, string) ([]netip.Addr, error) {
		return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
	}})
	for _, c := range []struct {
		name   string
		by     *authority
		change func(*x509.Certificate)
		max    uint16 // TLS version of the receiver
		code   string
	}{
		{"good", trusted, nil, 0, ""},
		{"TLS 1.2", trusted, nil, tls.VersionTLS12, ""},
		{"expired", trusted, func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) }, 0, CodeTLSFailure},
		{"not yet valid", trusted, func(c *x509.Certificate) { c.NotBefore = time.Now().Add(time.Minute) }, 0, CodeTLSFailure},
		{"another host", trusted, func(c *x509.Certificate) { c.DNSNames = []string{"hook.example.evil"} }, 0, CodeTLSFailure},
		{"common name alone", trusted, func(c *x509.Certificate) { c.DNSNames, c.Subject.CommonName = nil, "hook.example" }, 0, CodeTLSFailure},
		{"wildcard of another level", trusted, func(c *x509.Certificate) { c.DNSNames = []string{"*.hook.example"} }, 0, CodeTLSFailure},
		{"for clients", trusted, func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth} }, 0, CodeTLSFailure},
		{"self-signed", nil, nil, 0, CodeTLSFailure},
		{"signed by a stranger", stranger, nil, 0, CodeTLSFailure},
		{"TLS 1.1", trusted, nil, tls.VersionTLS11, CodeTLSFailure},
	} {
		t.Run(c.name, func(t *testing.T) {
			var heard atomic.Int32
			leaf := newAuthority(t, c.by, host(c.change))
			srv := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { heard.Add(1) }))
			srv.Config.ErrorLog = quiet()
			srv.TLS = &tls.Config{
				Certificates: []tls.Certificate{{Certificate: [][]byte{leaf.cert.Raw}, PrivateKey: leaf.key}},
				MinVersion:   tls.VersionTLS10, MaxVersion: c.max,
			}
			srv.StartTLS()
			t.Cleanup(srv.Close)
			r := request(fmt.Sprintf("https://hook.example:%d/", srv.Listener.Addr().(*net.TCPAddr).Port))
			r.Secrets = [][]byte{[]byte("k")}
			res := s.Send(context.Background(), r)
			require.Equal(t, c.code, res.Code, res.Detail)
			requireClean(t, res)
			if c.code == "" {
				require.EqualValues(t, 1, heard.Load())
			} else {
				require.Zero(t, heard.Load(), "the payload went to it")
			}
		})
	}
}

// When a handshake arrives byte by byte, or its records never end, Send ends by the handshake
// timeout.
func TestSlowHandshakes(t *testing.T) {
	for name, talk := range map[string]func(net.Conn){
		"trickle":  func(c net.Conn) { _ = say(c, "\x16\x03\x03\x40\x00\x02"); trickle(c, "\x00") },
		"byte":     func(c net.Conn) { trickle(c, "\x16") },
		"no alert": func(c net.Conn) { _ = say(c, "\x16"); hold(c) },
	} {
		s := newSender(t, Config{Allow: loopback(), TLS: 100 * time.Millisecond})
		r := request(strings.Replace(connServer(t, talk), "http:", "https:", 1))
		r.Timeout = time.Minute
		res := s.Send(context.Background(), r)
		require.Contains(t, []string{CodeTimeout, CodeTLSFailure}, res.Code, name)
		require.Less(t, res.Took, 8*time.Second, name)
	}
}
