package queue

import (
	"slices"
	"strings"
)

// Typed is an action as typed on a command line: what Action.Read finds in a line that
// Action.Command may have printed.
type Typed struct {
	Words   []string          // the words that belong to no flag: ids, then the argument that needs no flag
	Args    map[string]string // values of the flags
	Filters []string          // the values of --filter
	All     bool              // --all was given
	Reason  string
	Flags   bool // at least one flag was given
}

// SplitWords splits a command line into words as a POSIX shell does, without expanding
// anything. ok is false if a quotation is not closed.
func SplitWords(line string) (words []string, ok bool) {
	var word strings.Builder
	begun, quote := false, rune(0)
	in := []rune(line)
	for i := 0; i < len(in); i++ {
		switch r := in[i]; {
		case quote != 0 && r == quote:
			quote = 0
		case r == '\\' && quote != '\'' && i+1 < len(in) && (quote == 0 || in[i+1] == '"' || in[i+1] == '\\'):
			i++
			word.WriteRune(in[i])
			begun = true
		case quote != 0:
			word.WriteRune(r)
		case r == '\'' || r == '"':
			quote, begun = r, true
		case r == ' ' || r == '\t':
			if begun {
				words = append(words, word.String())
			}
			word.Reset()
			begun = false
		default:
			word.WriteRune(r)
			begun = true
		}
	}
	if begun {
		words = append(words, word.String())
	}
	return words, quote == 0
}

// Spelled reports whether a command line begins with the words of this action, and returns the rest
// of the line, which Read reads. n is the number of matching words: if two actions match, the one
// with more words is meant.
func (a Action) Spelled(line []string) (rest []string, n int, ok bool) {
	for _, spelling := range append([]string{a.Words}, a.Spellings...) {
		words := strings.Fields(spelling)
		left, fits := slices.Clone(line), len(words) > 0
		for _, w := range words {
			i := slices.Index(left, w)
			if fits = i == 0 || i > 0 && strings.HasPrefix(w, "--"); !fits {
				break
			}
			left = slices.Delete(left, i, i+1)
		}
		if fits && len(words) > n {
			rest, n, ok = left, len(words), true
		}
	}
	return rest, n, ok
}

// Read reads the words that follow the action's own words on a command line. It accepts whatever
// Command prints; problem names a flag that the action does not have.
func (a Action) Read(words []string) (t Typed, problem string) {
	t.Args = map[string]string{}
	for i := 0; i < len(words); i++ {
		w := words[i]
		if w == "--" {
			t.Words = append(t.Words, words[i+1:]...)
			break
		}
		name, isFlag := strings.CutPrefix(w, "--")
		name, value, given := strings.Cut(name, "=")
		arg, known := Find(a.Args, func(x Arg) bool { return x.Name == name && !x.Positional })
		alone := name == "yes" || name == "dry-run" || name == "all" && a.Targets.Instead == "all" || known && arg.Kind == ArgSwitch && arg.Default == "false"
		known = known || alone || slices.Contains([]string{"reason", "confirm"}, name) || name == "filter" && a.Targets.Instead == "filter"
		switch {
		case isFlag && !known && a.Free().Kind == ArgText && a.Free().Name != "":
			isFlag = false // this argument takes any text, also one that begins with dashes
		case isFlag && !known:
			return t, "unknown flag --" + name + "; flags: " + a.flagNames()
		}
		if !isFlag {
			t.Words = append(t.Words, w)
			continue
		}
		t.Flags = true
		if !given && !alone {
			if i++; i == len(words) {
				return t, "--" + name + " needs a value"
			}
			value = words[i]
		}
		switch name {
		case "yes", "dry-run", "confirm": // without effect: the dialog always previews and asks
		case "all":
			t.All = true
		case "reason":
			t.Reason = value
		case "filter":
			t.Filters = append(t.Filters, value)
		default:
			t.Args[name] = Choose(given || !alone, value, "true")
		}
	}
	return t, ""
}

func (a Action) flagNames() string {
	names := []string{}
	if a.Targets.Instead != "" {
		names = append(names, "--"+a.Targets.Instead)
	}
	for _, arg := range a.Args {
		if !arg.Positional {
			names = append(names, "--"+arg.Name)
		}
	}
	return strings.Join(append(names, "--reason"), ", ")
}

// Ready reports whether a request has everything that a form would ask for.
func (a Action) Ready(r Request) bool {
	if a.Reason && strings.TrimSpace(r.Reason) == "" {
		return false
	}
	for _, arg := range a.Args {
		if v, given := r.Args[arg.Name]; arg.Required && v == "" && (given || arg.Default == "") {
			return false
		}
	}
	return true
}
