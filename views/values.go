package views

// How missing values are shown.

// dashed returns *p formatted by say; a dash if p is nil.
func dashed[T any](e Env, p *T, say func(T) string) string {
	if p == nil {
		return e.Theme.G.Dash
	}
	return say(*p)
}

// orZero returns *p; the zero value if p is nil.
func orZero[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// nobody returns the text for an alert or row without an owner.
func (e Env) nobody() string { return e.Theme.G.Dash + " nobody " + e.Theme.G.Dash }
