//go:build !linux

package handler

// newRun returns "", because on these systems processes cannot be found by the name of their run.
func newRun() string { return "" }

type strays struct{}

func straysOf(string, start) *strays { return nil }

// kill does nothing: processes that left their process group cannot be found.
func (*strays) kill() {}

type start struct{}

func begun(int) start { return start{} }

// KillCommands does nothing on these systems: commands continue when the program ends.
func KillCommands() {}
