package views

// Divides the screen into its parts.

// Rect is a part of the screen, in cells.
type Rect struct{ X, Y, W, H int }

// Layout has the parts of the screen from top to bottom. The header and the status line are the
// lines above and below the body; with a production profile both are coloured.
type Layout struct {
	Header, Tabs, Banner, Body, Status, Footer Rect
}

// Split divides a screen of w × h cells that has this many banner lines. ok is false if the screen
// is too small to show every warning.
func Split(w, h, banners int) (l Layout, ok bool) {
	if w < MinWidth || h < MinHeight {
		return Layout{}, false
	}
	banners = min(max(banners, 0), MaxBanners)
	y := 0
	row := func(n int) Rect {
		r := Rect{0, y, w, n}
		y += n
		return r
	}
	l.Header = row(1)
	l.Tabs = row(1)
	l.Banner = row(banners)
	l.Body = row(h - 4 - banners)
	l.Status = row(1)
	l.Footer = row(1)
	return l, true
}
