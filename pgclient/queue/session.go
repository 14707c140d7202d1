package queue

// Session describes this connection: the login, its rights, and how it reaches the server.
// PostgreSQL enforces the rights; the console only shows them.
type Session struct {
	User     Text     // session_user
	InForce  Text     // the role with whose rights the login works, quoted for a statement; empty unless ALTER ROLE … SET role gives it another than its own
	Actor    string   // the person whom audit rows name, as the program claims
	Roles    []string // roles of qtop of which the login, or InForce, is a member
	Database Text
	// Environment is read from the database's flag.
	Environment Environment // as the flag queue.environment of the database says
	Address     Text        // host:port of the server that answered, or "local socket"
	Version     Text
	InRecovery  bool
	ReadOnly    bool // by default_transaction_read_only, or by the setting read_only of qtop
	Pooler      bool // there is a transaction pooler, so LISTEN does not work
	TLS         bool // encrypted on every part of the way, as the server says (pg_stat_ssl) and also to a pooler
	Local       bool // not encrypted, but the connection does not leave this machine
	Encryption  Text // TLS and Local in words
	Superuser   bool
	Misfit      *Error // why this program cannot use the installed schema; nil = it can
	// Rights says for each action whether this login may use it; Needs names the missing role
	// if it may not.
	Rights map[ActionID]bool
	Needs  map[ActionID]string
}

// Holder names whose rights are in force, for a text: the login, or the role with whose rights it
// works. A GRANT to anyone else has no effect.
func (s *Session) Holder() string {
	if s.InForce.Empty() {
		return s.User.String()
	}
	return "the role " + s.InForce.String() + ", with whose rights " + s.User.String() + " works,"
}

// Link is the state of a console's connection to the database.
type Link struct {
	State   string  // connecting, live, polling, slow (a call took too long, and the server answers others), lost
	Reason  Text    // of the last failure; empty while live
	Attempt int     // number of the attempt to reconnect
	RetryIn float64 // seconds until the next attempt, while lost
}
