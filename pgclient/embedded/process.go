package embedded

// process describes one process of this machine.
type process struct {
	pid    int
	zombie bool
	cwd    string // "" = not readable
	name   string // program name
	args   string // command line or process title
}
