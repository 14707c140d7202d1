package queue

// Session describes this connection: the login, its rights, and the kind of connection. The
// rights are enforced by PostgreSQL; the console only mirrors them.
type Session struct {
	User     Text   // session_user
	Actor    string // the person claimed for audit rows
	Roles    []string
	Database Text
	// Environment is the environment that the database's flag names.
	Environment Environment
	Address     Text // host:port that answered, or "local socket"
	Version     Text
	InRecovery  bool
	ReadOnly    bool // default_transaction_read_only or the read_only setting
	Pooler      bool // a transaction pooler is in the path: no LISTEN
	TLS         bool // encrypted as the server says (pg_stat_ssl), and up to a pooler in the path
	Local       bool // an unencrypted connection stays on loopback or a socket
	Encryption  Text // TLS and Local in words
	Superuser   bool
	Misfit      *Error // why the installed schema does not serve this program; nil when it does
	// Rights says for each action whether this login may use it; Needs names the missing role
	// if it may not.
	Rights map[ActionID]bool
	Needs  map[ActionID]string
}

// Link is the state of a console's connection to the database.
type Link struct {
	State   string // connecting, live, polling, lost
	Reason  Text   // of the last failure; empty while live
	Attempt int
	RetryIn float64 // seconds, while lost
}
