package tui

// This file is the keys that move and look. The capitals that act come from the
// registry of actions; both together make the help and docs/keys.md.

// KeyHelp is one line of the list of keys.
type KeyHelp struct {
	Group, Keys, Text string
}

// Keys lists the keys that move and look, in the order of the help.
func Keys() []KeyHelp {
	list := []KeyHelp{}
	for _, p := range Panes() {
		list = append(list, KeyHelp{"Panes", p.Keys, p.Title + ": " + p.Help})
	}
	return append(list, []KeyHelp{
		{"Panes", "0", "the menu of all panes"},
		{"Panes", "tab, shift+tab", "the next pane, the one before"},
		{"Move", "j k, arrows", "down and up a row"},
		{"Move", "gg G", "the first row, the last row; so do home and end"},
		{"Move", "pgdn pgup", "a screen down, a screen up; so do ctrl+f and ctrl+b"},
		{"Move", "ctrl+d ctrl+u", "half a screen down, half a screen up"},
		{"Move", "enter, l, right", "open what is under the cursor; never acts"},
		{"Move", "esc, h, left", "back: dialog, filter, selection, parent; never quits"},
		{"Look", "/", "filter this pane: field:glob = > < !negate a|b \"quoted\""},
		{"Look", "n", "the next match of the filter or the search"},
		{"Look", "o", "choose the order of the rows"},
		{"Look", "p", "pause the picture and go on; while paused no action works"},
		{"Look", "[ ]", "back and forward through the pictures of the last 24 hours, one a minute; no action works there, p goes back to now"},
		{"Look", ":at", "the picture of 02:14, of 45m ago, of 2026-01-31T02:14; :at now goes back"},
		{"Look", "t", "times in UTC or as here"},
		{"Look", "x", "export this list, or what is marked of it, to a file: .csv, .json, .jsonl; esc cancels"},
		{"Look", "y", "copy the id under the cursor (OSC 52)"},
		{"Look", "m", "mouse on and off; while on, the terminal cannot select text"},
		{"Select", "space", "mark the row and go down"},
		{"Select", "v", "begin a range, end it"},
		{"Select", "ctrl+a", "mark all that are loaded; again: all that match"},
		{"Other", ":", "command line with completion (tab)"},
		{"Other", "?", "this help; / filters it"},
		{"Other", "q", "quit; asks only if loops run in this process"},
		{"Other", "ctrl+c", "drain the loops and quit; twice hands back at once"},
		{"Other", "ctrl+z", "suspend; only when no loop runs in this process"},
	}...)
}
