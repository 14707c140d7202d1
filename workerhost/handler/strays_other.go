//go:build !linux

package handler

// newRun returns "", because on these systems processes cannot be found by the name of their run.
func newRun() string { return "" }

// killStrays does nothing: processes that left their process group cannot be found.
func killStrays(string, start) {}

type start struct{}

func begun(int) start { return start{} }

// KillCommands does nothing on these systems: commands continue when the program ends.
func KillCommands() {}
