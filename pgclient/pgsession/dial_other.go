//go:build !linux

package pgsession

import "syscall"

func limitUnacknowledged(string, string, syscall.RawConn) error { return nil }
