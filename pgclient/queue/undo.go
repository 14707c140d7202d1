package queue

import (
	"cmp"
	"slices"
	"strings"
)

// Undo says how an action is reversed, with placeholders instead of targets; "" = it cannot be
// undone.
func (r Registry) Undo(a Action) string {
	if a.Opposite == "" {
		return a.Undo
	}
	o := r.ByID(a.Opposite)
	line := "qtop " + o.Words
	if o.Targets.Name != "" {
		line += " " + o.Targets.Name + Choose(o.Targets.Many, "…", "")
	}
	return strings.Join(slices.DeleteFunc([]string{line, a.Undo}, func(s string) bool { return s == "" }), "; ")
}

// undoLength is the length of the longest command that reverses an action: a longer one would fill
// the screen.
const undoLength = 600

// UndoCommand returns the complete command line that reverses a request; "" = there is none, or its
// target is only known once the request was carried out.
func (r Registry) UndoCommand(q Request) string {
	a := r.ByID(q.Action)
	o := r.ByID(a.Opposite)
	u := Request{Action: o.ID, Args: map[string]string{}, Confirm: q.Confirm}
	switch {
	case o.Words == "" || o.Local():
		return ""
	case o.Targets.Name == "":
	case a.Targets.Name == o.Targets.Name:
		u.Targets = q.Targets
	case a.Targets.Name == "" && o.Targets.Of == a.Makes:
		u.Targets = []string{q.Args[a.Free().Name]}
	}
	if o.Targets.Name != "" && (len(u.Targets) == 0 || slices.Contains(u.Targets, "")) {
		return ""
	}
	for _, arg := range o.Args {
		if u.Args[arg.Name] = arg.Default; arg.Required && arg.Default == "" {
			if q.Args[arg.Name] == "" {
				return ""
			}
			u.Args[arg.Name] = "undo: " + begin(q.Args[arg.Name])
		}
	}
	if o.Reason {
		u.Reason = "undo: " + begin(cmp.Or(q.Reason, a.Words))
	}
	if line := o.Command(u); len(line) <= undoLength {
		return line
	}
	return ""
}

// BackCommand returns the command line of the action of q on the same targets with other
// arguments: those that set the old values again; "" = the action refuses one of them, which an
// earlier release accepted.
func (r Registry) BackCommand(q Request, args map[string]string) string {
	a := r.ByID(q.Action)
	for _, arg := range a.Args {
		if old, given := args[arg.Name]; given && arg.Check(old) != nil {
			return ""
		}
	}
	u := Request{Targets: q.Targets, Args: args, Confirm: q.Confirm}
	if a.Reason {
		u.Reason = "undo: " + begin(cmp.Or(q.Reason, a.Words))
	}
	return a.Command(u)
}

// begin returns the first hundred characters of a text.
func begin(text string) string {
	r := []rune(text)
	return string(r[:min(len(r), 100)])
}

// UndoWords returns what a dialog says about reversing a request in addition to its undo command,
// which is "" if there is none.
func (r Registry) UndoWords(q Request, command string) string {
	a := r.ByID(q.Action)
	o := r.ByID(a.Opposite)
	if command == "" && o.Words != "" && (a.Undo == "" || a.Targets.Name == o.Targets.Name) {
		return "select the rows in their list, then " + cmp.Or(o.Key, ":"+o.Words) + Choose(a.Undo == "", "", "; "+a.Undo)
	}
	return cmp.Or(a.Undo, Choose(command == "", "none: this action cannot be undone", ""))
}
