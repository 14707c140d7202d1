package tui

// KeyHelp is one line of the key reference: keys and what they do.
type KeyHelp struct {
	Group, Keys, Text string
}

// Keys lists the keys that move, look and select, in the order of the help.
// Keys that act are capital letters; each belongs to an action (package
// actions). docs/keys.md lists both.
func Keys() []KeyHelp {
	list := []KeyHelp{}
	for _, p := range Panes() {
		list = append(list, KeyHelp{"Panes", p.Keys, p.Title + ": " + p.Help})
	}
	return append(list, []KeyHelp{
		{"Panes", "0", "the menu of all panes"},
		{"Panes", "tab, shift+tab", "the next pane, the previous pane"},
		{"Move", "j k, arrows", "down a row, up a row"},
		{"Move", "gg G", "the first row, the last row; so do home and end"},
		{"Move", "pgdn pgup", "a screen down, a screen up; so do ctrl+f and ctrl+b"},
		{"Move", "ctrl+d ctrl+u", "half a screen down, half a screen up"},
		{"Move", "enter, l, right", "open what is under the cursor; never acts"},
		{"Move", "esc, h, left", "back: dialog, filter, selection, parent; never quits"},
		{"Look", "/", "filter this pane: field:glob = > < !negate a|b \"quoted\""},
		{"Look", "n", "the next match of the filter or the search"},
		{"Look", "o", "choose the order of the rows"},
		{"Look", "p", "pause and resume the snapshot; no action works while paused"},
		{"Look", "[ ]", "back and forward through the snapshots of the last 24 hours, one per minute; no action works there, p returns to now"},
		{"Look", ":at", "the snapshot of a time: :at 02:14, :at 45m (ago), :at 2026-01-31T02:14; :at now returns"},
		{"Look", "t", "show times in UTC or in local time"},
		{"Look", "x", "export this list, or its selected rows, to a file (.csv, .json, .jsonl); esc cancels"},
		{"Look", "y", "copy the id under the cursor (OSC 52)"},
		{"Look", "m", "mouse on and off; while on, the terminal cannot select text"},
		{"Select", "space", "select the row and go down"},
		{"Select", "v", "begin a range, end the range"},
		{"Select", "ctrl+a", "select all loaded rows; again: all matching rows"},
		{"Other", "+ -", "double and halve the rate of the operation under the cursor (6)"},
		{"Other", ":", "command line with completion (tab)"},
		{"Other", "?", "this help; / filters it"},
		{"Other", "q", "quit; asks first if loops run in this process"},
		{"Other", "ctrl+c", "drain the loops and quit; again: hand back the claimed work and quit at once"},
		{"Other", "ctrl+z", "suspend qtop; only while no loop runs in this process"},
	}...)
}
