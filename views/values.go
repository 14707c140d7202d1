package views

// How absent values are shown.

// dashed says a value, a dash where there is none.
func dashed[T any](e Env, p *T, say func(T) string) string {
	if p == nil {
		return e.Theme.G.Dash
	}
	return say(*p)
}

// orZero is a value, that of its kind which is nothing where there is none.
func orZero[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// nobody says that something has no owner.
func (e Env) nobody() string { return e.Theme.G.Dash + " nobody " + e.Theme.G.Dash }
