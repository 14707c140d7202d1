package secrecy_test

import (
	"bytes"
	"encoding/base64"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/queue/secrecy"
)

// A secret is masked in every form and piece in which a library may print it.
func TestMask(t *testing.T) {
	const secret = `Kq7@wZ/x9"V?b2#mT\n5c`
	var k secrecy.Keeper
	k.Know(secret, "tiny", "abc", "postgres")
	for said, want := range map[string]string{
		"lookup wz/x9\"v?b2#: no such host":                      "lookup ****: no such host",
		"before " + secret + " after":                            "before **** after",
		secret + secret:                                          "****",
		"a " + strings.ToUpper(secret):                           "a ****",
		"a " + url.QueryEscape(secret) + ".":                     "a ****.",
		"a " + base64.StdEncoding.EncodeToString([]byte(secret)): "a ****",
		"a " + strconv.Quote(secret):                             `a "****"`,
		"the tiny one, abc":                                      "the **** one, abc",
		"role postgres does not exist":                           "role postgres does not exist",
		"Kq7@w":                                                  "Kq7@w", // five bytes
		"":                                                       "",
		"nothing of it":                                          "nothing of it",
	} {
		require.Equal(t, want, k.Mask(said), said)
	}
	var none secrecy.Keeper
	require.Equal(t, secret, none.Mask(secret))
}

func TestLearn(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	for name, environ := range map[string][]string{
		"PGPASSWORD":   {"PGPASSWORD=Canary1234"},
		"URL":          {"QTOP_DSN=postgres://u:Canary1234@h/db"},
		"ambiguous":    {"QTOP_DSN=postgres://u:a@b/Canary1234@h/db"},
		"no host":      {"DATABASE_URL=postgres://u:Canary1234"},
		"pairs":        {"QTOP_DSN=host=h password='Canary1234 '"},
		"in a query":   {"QTOP_DSN=postgres://h/db?sslpassword=Canary1234&a=b"},
		"pgpass":       {"PGPASSFILE=" + write("pass", "# x\nh:5432:*:u\\:x:Canary1234\n")},
		"broken":       {"PGPASSFILE=" + write("broken", "h:u:Canary1234\n")},
		"service":      {"PGSERVICEFILE=" + write("service", "[prod]\nhost=h\npassword=Canary1234\n")},
		"mistyped key": {"PGSERVICEFILE=" + write("typo", "[prod]\nhost=h\npasword=Canary1234\n")},
		"named file":   {"QTOP_DSN=servicefile=" + filepath.Join(dir, "service") + " service=prod"},
		"mistyped URL": {"QTOP_DSN=postgres=//h/db?pasword=Canary1234&sslmode=nope"},
		"bad scheme":   {"QTOP_DSN=post=gres:/u:}Canary1234 x password=@127.0.0.1:1/db?sslmode=disable"},
		"blank in it":  {"QTOP_DSN=pos tgres:/u:}Canary1234 x password=@127.0.0.1:1/db?sslmode=disable"},
		"line in it":   {"QTOP_DSN=postgr\nes:/u:}Canary\n1234Canary1234@127.0.0.1:1/db?sslmode=disable"},
		"quotes in it": {"QTOP_DSN=host=hhsslpassword='x'Canary1234 port=x dbname=d"},
		"no name":      {"QTOP_DSN=postgres=:/h/db?pasword=&`Canary1234]x=%40&sslmode=nope"},
		"quoted host":  {"QTOP_DSN=host='h,sslpassword=: Canary1234password=x' port=x dbname=d"},
		"no blank":     {`QTOP_DSN=host=hpassword=\ #Canary1234]#@h/ port=x dbname=d`},
		":// in it":    {"QTOP_LOOPS=u:://,Canary1234,x> @127.0.0.1"},
		"no ?":         {"QTOP_DSN=postgres://h/db:pasword=Canary1234&sslmode=nope"},
		"no scheme":    {"QTOP_DSN=h/db?pasword=Canary1234&sslmode=nope"},
		"no known key": {"QTOP_LISTEN_DSN=hos=h hpassword={Zk7- Canary1234password= port=x d=named"},
		"handler":      {`QTOP_HANDLERS=[{"kind":"k","url":"https://u:Canary1234@h/x"}]`},
		"home":         {"HOME=" + dir},
	} {
		write(".pgpass", "*:*:*:*:Canary1234")
		var k secrecy.Keeper
		k.Learn(append(environ, "REASON=bypass: state=Failed queue=default", "JAVA_TOOL_OPTIONS=-Dspring.profiles.active=production -DtrustStorePassword=x",
			"CI_COMMIT_MESSAGE=checks passed: kind=mail domain=orders", "NOTE=The postgres server: host profile@work", "PG=host=postgres.example:5432 user=profile@queue dbname=work", "ConnectionStrings__Db=Server=db.example;Database=jobs;User Id=u;Password=Zk7"))
		require.NotContains(t, k.Mask("said Canary1234 again"), "Canary", name)
		for _, harmless := range []string{"host h, user u", "queue work, state, profile production, kind mail", "Server and Database jobs"} {
			require.Equal(t, harmless, k.Mask(harmless), name)
		}
	}
}

func TestCheckDSN(t *testing.T) {
	for dsn, says := range map[string]string{
		"":                                       "",
		"service=prod":                           "",
		"host=h user=me@corp":                    "",
		"host=h password='a b' dbname=d":         "",
		"host=/run/postgresql":                   "",
		"postgres://":                            "",
		"postgres://u@h":                         "",
		"postgres://u:p:w%40@h:5432,[::1]:5/db":  "",
		"postgres:///db?host=/run/x":             "",
		"postgres://u:a%2Fb@h/d?sslmode=disable": "",
		"postgres://u:a@b@h/d":                   "two ways",
		"postgres://u:a@b/c@h/d":                 "two ways",
		"postgres://u:a/b@h/d":                   "two ways",
		"postgres://u:12/b@h/d":                  "two ways",
		"postgres://u:a?b@h/d":                   "two ways",
		"postgres://u:a#b@h/d":                   "two ways",
		"postgres://u:ab@h/d#x":                  "two ways",
		"postgres://u:secret":                    "host or port",
		"postgres://u:p@h:port/d":                "host or port",
		"postgres://u:p%zz@h/d":                  "begins no escape",
		"postgres://u:p w@h/d":                   "space",
		"postgres//u:p@h":                        "neither",
		"host=h password=a b":                    "neither",
		"host=h password='a":                     "neither",
		"host=h password='a'b c=d":               "neither",
	} {
		what, do := secrecy.CheckDSN(dsn)
		if says == "" {
			require.Empty(t, what, dsn)
			continue
		}
		require.Contains(t, what, says, dsn)
		require.NotEmpty(t, do, dsn)
	}
	for host, fine := range map[string]bool{
		"": true, "h": true, "db-1.example.org": true, "/run/x y": true, "@abstract": true, "::1": true, "fe80::1%eth0": true, "10.0.0.1": true,
		"u:p@h": false, "a/b": false, "postgres://h": false, "h password=x": false, "x#y": false,
	} {
		what, _ := secrecy.CheckHost(host)
		require.Equal(t, fine, what == "", host)
	}
}

func TestWriter(t *testing.T) {
	secrecy.Know("Canary1234")
	t.Cleanup(secrecy.Forget)
	var b bytes.Buffer
	n, err := secrecy.Writer{W: &b}.Write([]byte("a Canary1234\n"))
	require.NoError(t, err)
	require.Equal(t, 13, n)
	require.Equal(t, "a ****\n", b.String())
}

// Mask never changes a text without secrets, and never fails.
func FuzzMask(f *testing.F) {
	f.Add("Canary1234", "said Canary1234")
	f.Add("\xff\xfe\xfd\xfc", "\xff\xfe\xfd\xfc\xff")
	f.Fuzz(func(t *testing.T, secret, text string) {
		var k secrecy.Keeper
		k.Know(secret)
		masked := k.Mask(text)
		if len(secret) >= 6 && len(secret) < 1000 && k.Mask(secret) != secret {
			require.NotContains(t, masked, secret)
		}
		k.LearnText(text)
		_, _ = secrecy.CheckDSN(text)
		_, _ = secrecy.CheckHost(text)
	})
}
