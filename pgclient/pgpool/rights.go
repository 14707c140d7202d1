package pgpool

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/qtop/qtop/pgclient/queue"
)

// lacksWithin limits the search for the missing role: a caller waits for it after a refusal.
const lacksWithin = 2 * time.Second

// Lacks returns this login and the GRANT by which the login that migrates gives it the right to the
// function, table or view of this name in schema public; do is "" if nobody but the owner has that right.
// Where the login works with the rights of another role (ALTER ROLE … SET role), that role needs the
// right, unless the login has it itself.
func (p *Pool) Lacks(ctx context.Context, object string) (login, do string, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lacksWithin)
	defer cancel()
	var roles []string
	var self, to string
	var own bool
	err = p.Pool.QueryRow(ctx, `WITH granted AS (
		SELECT a.grantee FROM pg_catalog.pg_proc f, pg_catalog.aclexplode(f.proacl) a
			WHERE f.proname = $1 AND f.pronamespace = 'public'::pg_catalog.regnamespace AND a.grantee <> f.proowner
		UNION SELECT a.grantee FROM pg_catalog.pg_class c, pg_catalog.aclexplode(c.relacl) a
			WHERE c.relname = $1 AND c.relnamespace = 'public'::pg_catalog.regnamespace AND a.grantee <> c.relowner
		UNION SELECT a.grantee FROM pg_catalog.pg_class c JOIN pg_catalog.pg_attribute t ON t.attrelid = c.oid, pg_catalog.aclexplode(t.attacl) a
			WHERE c.relname = $1 AND c.relnamespace = 'public'::pg_catalog.regnamespace AND a.grantee <> c.relowner),
		lacked AS (SELECT r.oid, r.rolname FROM granted g JOIN pg_catalog.pg_roles r ON r.oid = g.grantee WHERE NOT pg_catalog.pg_has_role(current_user, r.oid, 'USAGE'))
		SELECT session_user::text, pg_catalog.quote_ident(session_user), pg_catalog.quote_ident(current_user),
			ARRAY(SELECT pg_catalog.quote_ident(l.rolname) FROM lacked l ORDER BY 1),
			EXISTS (SELECT FROM lacked l WHERE pg_catalog.pg_has_role(session_user, l.oid, 'USAGE'))`, object).Scan(&login, &self, &to, &roles, &own)
	whose := "the login"
	if to != self {
		whose = "the role " + to + ", with whose rights the login works,"
		to += ", which gives it to all its members"
	}
	switch {
	case err != nil || len(roles) == 0:
	case own:
		do = "the login has that right, but works with those of another role: ALTER ROLE " + self + " RESET role"
	case len(roles) == 1:
		do = whose + " needs the role " + roles[0] + "; as the login that ran migrate up: GRANT " + roles[0] + " TO " + to
	default:
		do = whose + " needs one of the roles " + strings.Join(roles, ", ") + "; as the login that ran migrate up: GRANT one of them TO " + to
	}
	return login, do, err
}

// rememberLacks is how long a pool remembers which right its login lacks: a host that lacks one is refused
// at each pass of its loops.
const rememberLacks = time.Minute

// lacks is what Lacks returned for one object; do is "" if it failed.
type lacks struct {
	until     time.Time
	ask       sync.Once
	login, do string
}

// remembered returns the answer of Lacks for an object, asked at most once per rememberLacks. Callers
// that need the same answer at the same time wait for one request.
func (p *Pool) remembered(object string) (login, do string) {
	now := time.Now()
	p.lackedMu.Lock()
	for name, l := range p.lacked {
		if now.After(l.until) {
			delete(p.lacked, name)
		}
	}
	l := p.lacked[object]
	if l == nil {
		l = &lacks{until: now.Add(rememberLacks)}
		p.lacked[object] = l
	}
	p.lackedMu.Unlock()
	l.ask.Do(func() {
		if name, grant, err := p.Lacks(context.Background(), object); err == nil {
			l.login, l.do = name, grant
		}
	})
	return l.login, l.do
}

// missingRight turns PostgreSQL's "permission denied for function x" into an error that names the
// login and the roles that have the right. It returns nil if a function of qtop raised the error,
// whose hint is the remedy, or if no role is found.
func (p *Pool) missingRight(pg *pgconn.PgError) *queue.Error {
	words := strings.Fields(pg.Message) // in the language of the server, but the name comes last
	if pg.Hint != "" || pg.Routine != "aclcheck_error" || len(words) == 0 {
		return nil
	}
	login, do := p.remembered(strings.Trim(words[len(words)-1], `"«»„“”`))
	if do == "" {
		return nil
	}
	return queue.NewError(queue.KindPermission, "login "+login+" lacks a right: "+pg.Message, "SQLSTATE "+pg.Code, do)
}
