//go:build unix && !linux

package embedded

// memoryRoot returns "": this system has no directory in memory.
func memoryRoot() string { return "" }
