package queue

// This file is an action in words: the command line that does the same, and what a
// dialog calls it.

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// shownTargets is how many ids a printed command names.
const shownTargets = 20

// Local tells an action of this process, which no command of another can do.
func (a Action) Local() bool { return a.Danger == DangerLocal }

// Command is the headless form of a request; "" = there is none. What begins with a
// dash and has no flag stands behind all flags, after two dashes.
func (a Action) Command(r Request) string {
	if a.Local() {
		return ""
	}
	words, behind := []string{"qtop", a.Words}, []string{}
	var given []string
	rest := ""
	switch t := a.Targets; {
	case t.Name == "" || a.Danger == DangerDatabase:
	case r.Filter != "":
		words = append(words, "--filter", shellQuote(r.Filter))
	case len(r.Targets) == 0 && t.Instead == "all":
		words = append(words, "--all")
	case len(r.Targets) > shownTargets:
		given, rest = r.Targets[:shownTargets], fmt.Sprintf("… (%d ids)", len(r.Targets))
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
	if rest != "" {
		words = append(words, rest)
	}
	for _, arg := range a.Args {
		v, ok := r.Args[arg.Name]
		if !arg.Positional && (v != "" || ok && (arg.Clears || arg.Default != "")) { // left out it would not be empty
			words = append(words, "--"+arg.Name+a.between()+shellQuote(v))
		}
	}
	if a.Danger == DangerDatabase {
		words = append(words, "--confirm", strings.Join(quoteAll(r.Targets), " "))
	}
	if r.Reason != "" {
		words = append(words, "--reason", shellQuote(r.Reason))
	}
	return Clean(strings.Join(append(words, behind...), " ")).String()
}

// between stands between a flag and its value: a switch is written --enabled=false,
// and what stands beside it alike.
func (a Action) between() string {
	if slices.ContainsFunc(a.Args, func(x Arg) bool { return x.Kind == ArgSwitch }) {
		return "="
	}
	return " "
}

// Usage is the command with placeholders, without the words before its last one:
// "release TOKEN|WEBHOOK-JOB...".
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

// Headless is the whole command with placeholders, as the docs show it.
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

// holder stands for a value.
func (a Arg) holder() string {
	switch {
	case a.Default != "":
		return a.Default
	case a.Kind == ArgDuration:
		return "30m"
	case a.Kind == ArgWhole || a.Kind == ArgNumber:
		return "N"
	case a.Kind == ArgSwitch:
		return "false"
	case a.Kind == ArgChoice && a.Required:
		return strings.Join(a.Choices, "|")
	}
	return strings.ToUpper(a.Name[:1])
}

// Heading is the title of its dialog.
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

// Pressed is what the button says that acts: on so many, and count is how that reads.
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

// Kept is the button that changes nothing.
func (a Action) Kept() string { return cmp.Or(a.Safe, "Keep") }

// Left is the button that leaves the form.
func (a Action) Left() string { return cmp.Or(a.Leave, "Cancel") }

// Word is the action in one word.
func (a Action) Word() string { return cmp.Or(a.Hint, strings.ToLower(strings.Fields(a.Verb)[0])) }

// Free is the argument that takes what stands on the command line behind the target;
// the zero value where there is none.
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
		q[i] = shellQuote(w)
	}
	return q
}

// shellQuote makes one word for a POSIX shell.
func shellQuote(s string) string {
	if s != "" && strings.IndexFunc(s, func(r rune) bool {
		return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.,:/@%+=", r)
	}) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
