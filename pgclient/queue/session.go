package queue

// Session describes this connection: the login, its rights, and how it reaches the server.
// PostgreSQL enforces the rights; the console only shows them.
type Session struct {
	User     Text   // session_user
	Actor    string // the person whom audit rows name, as the program claims
	Roles    []string
	Database Text
	// Environment is read from the database's flag.
	Environment Environment
	Address     Text // host:port of the server that answered, or "local socket"
	Version     Text
	InRecovery  bool
	ReadOnly    bool // default_transaction_read_only or the read_only setting
	Pooler      bool // there is a transaction pooler, so LISTEN does not work
	TLS         bool // the server says that it is encrypted (pg_stat_ssl), and so is the way to a pooler
	Local       bool // a connection without TLS that does not leave this machine
	Encryption  Text // TLS and Local as text
	Superuser   bool
	Misfit      *Error // why this program cannot use the installed schema; nil = it can
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
	RetryIn float64 // seconds until the next attempt, while lost
}
