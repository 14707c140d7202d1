//go:build unix && !linux

package embedded

// memoryRoot is a directory in memory with room for a test server; there is none.
func memoryRoot() string { return "" }
