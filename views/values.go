package views

// How missing values are shown.

// dashed returns the value as say formats it; a dash for nil.
func dashed[T any](e Env, p *T, say func(T) string) string {
	if p == nil {
		return e.Theme.G.Dash
	}
	return say(*p)
}

// orZero returns the value; the zero value for nil.
func orZero[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// nobody returns the text for an alert or row without an owner.
func (e Env) nobody() string { return e.Theme.G.Dash + " nobody " + e.Theme.G.Dash }
