package pgsession_test

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/pgsession"
	"github.com/qtop/qtop/pgclient/pgtest"
	"github.com/qtop/qtop/pgclient/queue"
)

// A session uses UTF-8, even if the login, the database, the environment or the connection string
// sets another encoding.
func TestEveryClientSpeaksUTF8(t *testing.T) {
	const word = "café 😀"
	db := pgtest.Empty(t)
	login := pgtest.Login(t, db)
	admin := db.Conn(t, "")
	name, user := pgx.Identifier{db.Name}.Sanitize(), pgx.Identifier{login}.Sanitize()
	say := func(dsn, by string) {
		t.Helper()
		conn, err := pgsession.Connect(t.Context(), dsn)
		require.NoError(t, err, by)
		defer func() { require.NoError(t, conn.Close(t.Context())) }()
		var encoding, back string
		require.NoError(t, conn.QueryRow(t.Context(), "SELECT pg_catalog.current_setting('client_encoding'), $1::text || chr(233)", word).
			Scan(&encoding, &back), by)
		require.Equal(t, "UTF8", encoding, by)
		require.Equal(t, word+"é", back, by)
	}
	dsn := db.DSN(login)
	sep := "?"
	if strings.Contains(dsn, "?") {
		sep = "&"
	}
	for _, sql := range []string{
		"ALTER DATABASE " + name + " SET client_encoding = LATIN1", "ALTER ROLE " + user + " SET client_encoding = SQL_ASCII",
		"ALTER ROLE " + user + " IN DATABASE " + name + " SET client_encoding = WIN1252",
	} {
		_, err := admin.Exec(t.Context(), sql)
		require.NoError(t, err)
		say(dsn, sql)
	}
	bare, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	defer func() { require.NoError(t, bare.Close(t.Context())) }()
	require.Equal(t, "WIN1252", bare.PgConn().ParameterStatus("client_encoding"), "the settings of the test do bite")
	for _, more := range []string{"client_encoding=LATIN1", "Client_Encoding=SQL_ASCII", "options=-c%20client_encoding%3DLATIN1"} {
		say(dsn+sep+more, more)
	}
	t.Setenv("PGCLIENTENCODING", "LATIN1")
	t.Setenv("PGOPTIONS", "-c client_encoding=LATIN1")
	say(dsn, "the environment")
}

// A connection to a database that is not UTF-8 fails with an error that says what to do.
func TestOtherEncodings(t *testing.T) {
	for _, encoding := range []string{"LATIN1", "SQL_ASCII", "EUC_JP"} {
		conn, err := pgsession.Connect(t.Context(), pgtest.Encoded(t, encoding).DSN(""))
		require.NoError(t, err, "whoever only looks may")
		err = pgsession.Encoding(conn)
		require.NoError(t, conn.Close(t.Context()))
		require.Equal(t, queue.KindConfig, queue.KindOf(err))
		require.ErrorContains(t, err, "the encoding of the database is "+encoding+", and qtop needs UTF8")
		require.ErrorContains(t, err, "createdb -E UTF8")
		require.NotContains(t, err.Error(), "\n")
	}
}
