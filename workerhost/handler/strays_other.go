//go:build !linux

package handler

// newRun names one run of a command; nothing is found by it here.
func newRun() string { return "" }

// killStrays does nothing: there is no way to find what left its process group.
func killStrays(string, int) {}

// KillCommands does nothing here: commands that run go on when the program ends.
func KillCommands() {}
