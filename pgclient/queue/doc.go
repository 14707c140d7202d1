// Package queue holds the value types that every part of qtop shares: what the
// database shows (Snapshot and the list rows), what an operator may do about it
// (Action, Request, Plan, Result), text that is safe to draw (Text) and the
// filter language. It imports the standard library only, so that the console,
// the worker host and the client can depend on it without depending on each
// other.
package queue
