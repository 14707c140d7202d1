// Package queue holds the value types that all parts of qtop share. It imports only the
// standard library and its own subpackages, so that the console, the worker host and the client
// can use it without depending on each other. Start with:
//
//   - [Snapshot] and the rows of lists ([Page], [Query]): what the console shows of the database;
//   - [Action], [Request], [Plan] and [Result]: what an operator can change, previewed and applied;
//   - [Text]: text from the database or the network, made safe to print on a terminal;
//   - [Filter]: the filter language, parsed once and used in memory and in SQL;
//   - [Error]: one line that says what happened, where, and what to do.
//
// Fields of database values have the JSON names of the verbs' answers (docs/json.md). Times are
// the server's.
package queue
