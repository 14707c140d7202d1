package config

// Says where values came from, for `qtop config show --origin`.

// Origin is one setting as it ended up.
type Origin struct {
	Key   string `json:"key"`
	Value string `json:"value"` // as it would be written, passwords masked
	From  string `json:"from"`  // "flag --dsn", "env QTOP_DSN", "file …, profile …", "default"
}

// Warnings lists what is odd and stops nothing: QTOP_ variables of unknown names.
func (s Settings) Warnings() Problems { return s.warnings }

// Origins lists every setting in the order of Keys.
func (s Settings) Origins() []Origin {
	return append([]Origin(nil), s.origins...)
}

func (l *loader) origins() []Origin {
	all := make([]Origin, len(l.keys))
	for i, k := range l.keys {
		all[i] = l.found[k.Name]
	}
	return all
}
