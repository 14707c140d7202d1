package queue

import (
	"cmp"
	"slices"
	"strings"
)

// Local reports whether the action changes this process only, so that a verb, which is another
// process, cannot do it.
func (a Action) Local() bool { return a.Danger == DangerLocal }

// Command returns the qtop command line that does the same as r; "" = there is none. A positional
// value that begins with a dash comes last, after --.
func (a Action) Command(r Request) string {
	if a.Local() {
		return ""
	}
	words, behind := []string{"qtop", a.Words}, []string{}
	var given []string
	switch t := a.Targets; {
	case t.Name == "" || a.Danger == DangerDatabase:
	case r.Filter != "":
		for _, f := range r.Filters() {
			words = append(words, "--filter", ShellQuote(f))
		}
	case len(r.Targets) == 0 && t.Instead == "all":
		words = append(words, "--all")
	default:
		given = r.Targets
	}
	for _, arg := range a.Args {
		if arg.Positional {
			given = append(slices.Clone(given), r.Args[arg.Name])
		}
	}
	if slices.ContainsFunc(given, func(s string) bool { return strings.HasPrefix(s, "-") }) {
		behind = append([]string{"--"}, quoteAll(given)...)
	} else {
		words = append(words, quoteAll(given)...)
	}
	for _, arg := range a.Args {
		v, ok := r.Args[arg.Name]
		if !arg.Positional && (v != "" || ok && (arg.Clears || arg.Default != "")) { // with the flag left out, the argument would get its default or keep its current value
			words = append(words, "--"+arg.Name+a.between()+ShellQuote(v))
		}
	}
	if name := Choose(a.Danger == DangerDatabase, strings.Join(r.Targets, " "), r.Confirm); name != "" && a.confirms() {
		words = append(words, "--confirm", ShellQuote(name))
	}
	if r.Reason != "" {
		words = append(words, "--reason", ShellQuote(r.Reason))
	}
	return CleanLong(strings.Join(append(words, behind...), " ")).String()
}

// confirms reports whether the action's verb has the flag --confirm.
func (a Action) confirms() bool {
	return a.Guards() || a.Danger == DangerDatabase || a.ID == ActEnvironment
}

// between returns the separator between a flag and its value: "=" if the action has a switch, which
// takes its value only as --enabled=false; otherwise a space.
func (a Action) between() string {
	if slices.ContainsFunc(a.Args, func(x Arg) bool { return x.Kind == ArgSwitch }) {
		return "="
	}
	return " "
}

// Usage returns the command with placeholders, without the words of the action's group: "release
// LEASE|WEBHOOK-JOB...".
func (a Action) Usage() string {
	words := strings.Fields(a.Words)
	use := words[len(words)-1]
	switch t := a.Targets; {
	case t.Name == "" || a.Danger == DangerDatabase:
	case t.Instead != "":
		use += " [" + t.Name + "...]"
	case t.Many:
		use += " " + t.Name + "..."
	default:
		use += " " + t.Name
	}
	for _, arg := range a.Args {
		if arg.Positional {
			use += " " + strings.ToUpper(arg.Name)
		}
	}
	return use
}

// Headless returns the whole command with placeholders, for the documents.
func (a Action) Headless() string {
	if a.Twin != "" {
		return a.Twin
	}
	s := "qtop " + a.Words
	switch t := a.Targets; {
	case t.Name == "" || a.Danger == DangerDatabase:
	case t.Many:
		s += " " + t.Name + "…"
	default:
		s += " " + t.Name
	}
	switch a.Targets.Instead {
	case "filter":
		s += " | --filter F"
	case "all":
		s += " | --all"
	}
	for _, arg := range a.Args {
		words := "--" + arg.Name + a.between() + arg.holder()
		switch {
		case arg.Positional:
			s += " " + strings.ToUpper(arg.Name)
		case arg.Required:
			s += " " + words
		default:
			s += " [" + words + "]"
		}
	}
	if a.Danger == DangerDatabase {
		s += " --confirm " + a.Targets.Name
	}
	return s + map[bool]string{true: " --reason R"}[a.Reason]
}

// holder returns an example or a placeholder for the value of the argument in a usage line, such
// as 30m or N.
func (a Arg) holder() string {
	switch {
	case a.Default != "":
		return a.Default
	case a.Kind == ArgDuration:
		return "30m"
	case a.Kind == ArgWhole || a.Kind == ArgNumber:
		return Choose(a.Or == "", "N", "N|"+a.Or)
	case a.Kind == ArgSwitch:
		return "false"
	case a.Kind == ArgChoice && a.Required:
		return strings.Join(a.Choices, "|")
	}
	return strings.ToUpper(a.Name[:1])
}

// Heading returns the title of the action's dialog.
func (a Action) Heading() string {
	switch {
	case a.Title != "":
		return a.Title
	case a.Noun == "":
		return a.Verb
	case a.Danger == DangerMany:
		return a.Verb + " " + a.Noun + "s"
	case strings.ContainsRune("aeiou", rune(a.Noun[0])):
		return a.Verb + " an " + a.Noun
	}
	return a.Verb + " a " + a.Noun
}

// Pressed returns the text of the button that applies the action to n targets. count is n as the
// screen writes it, such as 1,204.
func (a Action) Pressed(r Request, n int64, count string) string {
	if a.Button == "" {
		if a.Danger == DangerMany {
			return a.Verb + " " + count
		}
		return a.Verb
	}
	things := a.Noun
	if n != 1 {
		things += "s"
	}
	fill := []string{"{targets}", strings.Join(r.Targets, ", "), "{count}", count, "{things}", things}
	for name, v := range r.Args {
		fill = append(fill, "{"+name+"}", v)
	}
	return strings.NewReplacer(fill...).Replace(a.Button)
}

// Kept returns the text of the button that changes nothing.
func (a Action) Kept() string { return cmp.Or(a.Safe, "Keep") }

// Left returns the text of the button that leaves the form.
func (a Action) Left() string { return cmp.Or(a.Leave, "Cancel") }

// Word returns the action in one word, for the footer.
func (a Action) Word() string { return cmp.Or(a.Hint, strings.ToLower(strings.Fields(a.Verb)[0])) }

// Free returns the argument whose value follows the target on the command line; the zero value if
// the action has none.
func (a Action) Free() Arg {
	for _, arg := range a.Args {
		if arg.Positional {
			return arg
		}
	}
	return Arg{}
}

func quoteAll(words []string) []string {
	q := make([]string, len(words))
	for i, w := range words {
		q[i] = ShellQuote(w)
	}
	return q
}

// ShellQuote quotes a text as one word for a POSIX shell, if it needs that.
func ShellQuote(s string) string {
	if s != "" && strings.IndexFunc(s, func(r rune) bool {
		return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.,:/@%+=", r)
	}) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
