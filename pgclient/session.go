package pgclient

// This file asks the database who is connected and what this login may do: the
// console mirrors rights, PostgreSQL enforces them.

import (
	"context"
	"fmt"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/pgclient/schema"
)

// groupRoles are the roles that the header names.
var groupRoles = []string{
	"queue_viewer", "dot_executor", "workflow_admin", "dead_letter_operator", "event_ingest_writer",
	"router_worker", "saga_orchestrator", "webhook_worker", "lease_reset_cleaner", "subscription_admin",
}

// Session reads it.
func (c *Client) Session(ctx context.Context) (queue.Session, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	s := queue.Session{Actor: c.Actor(), Rights: map[queue.ActionID]bool{}, Needs: map[queue.ActionID]string{}}
	conn, err := c.read.Acquire(ctx)
	if err != nil {
		return s, translate(err)
	}
	defer conn.Release()
	var readOnly string
	err = conn.QueryRow(ctx, `SELECT session_user::text, current_database(), current_setting('server_version'), pg_is_in_recovery(),
		current_setting('default_transaction_read_only'),
		(SELECT rolsuper FROM pg_roles WHERE rolname = session_user),
		ARRAY(SELECT r.rolname::text FROM pg_roles r WHERE r.rolname = ANY ($1)
		      AND pg_has_role(session_user, r.oid, 'MEMBER') ORDER BY array_position($1, r.rolname::text))`, groupRoles).
		Scan(textInto(&s.User), textInto(&s.Database), textInto(&s.Version), &s.InRecovery, &readOnly, &s.Superuser, &s.Roles)
	if err != nil {
		return s, translate(err)
	}
	s.ReadOnly = readOnly == "on"
	pc := conn.Conn().PgConn()
	s.TLS = conn.Conn().Config().TLSConfig != nil
	cfg := conn.Conn().Config()
	s.Address = queue.Clean(fmt.Sprintf("%s:%d", cfg.Host, cfg.Port))
	if local(cfg.Host) && len(cfg.Host) > 0 && (cfg.Host[0] == '/' || cfg.Host[0] == '@') {
		s.Address = queue.Clean("local socket")
	}
	var backend uint32
	if err := conn.QueryRow(ctx, "SELECT pg_backend_pid()").Scan(&backend); err != nil {
		return s, translate(err)
	}
	s.Pooler = backend != pc.PID()
	st, err := schema.GetStatus(ctx, conn.Conn())
	switch {
	case err != nil:
		s.SchemaState = "the schema version cannot be read"
	case st.Current == 0:
		s.SchemaState = "not installed: run qtop migrate up"
	case st.Current < st.Latest:
		s.SchemaState = fmt.Sprintf("version %d, this qtop knows %d: run qtop migrate up", st.Current, st.Latest)
	case st.Current > st.Latest:
		s.SchemaState = fmt.Sprintf("version %d is newer than this qtop (%d)", st.Current, st.Latest)
	}
	for _, a := range queue.Actions() {
		if a.Function == "" {
			s.Rights[a.ID] = true
			continue
		}
		var may *bool
		err := conn.QueryRow(ctx, `SELECT CASE WHEN to_regprocedure($1) IS NOT NULL
			THEN has_function_privilege(session_user, to_regprocedure($1), 'EXECUTE') END`, a.Function).Scan(&may)
		if err != nil {
			return s, translate(err)
		}
		s.Rights[a.ID] = may != nil && *may
		if !s.Rights[a.ID] {
			s.Needs[a.ID] = a.Role
		}
	}
	return s, nil
}
