package queue

// Arguments of actions. Their checks are in this package, so that a form, a verb and a plan refuse
// the same value with the same words.

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// ArgKind says which values an argument accepts.
type ArgKind int

// The kinds.
const (
	ArgText     ArgKind = iota // a text of up to Max characters
	ArgWord                    // a text without spaces and commas
	ArgDuration                // such as 90s, 30m, 2h, 1d
	ArgWhole                   // a whole number from Min to Max
	ArgNumber                  // a number from Min to Max
	ArgChoice                  // one of Choices
	ArgSwitch                  // true or false
	ArgObject                  // a JSON object
)

// Arg is one input of an action's form.
type Arg struct {
	Name       string // the key in Request.Args and the name of the verb's flag
	Label      string // its name in a form
	Default    string // the value if it is left out; "" = none
	Required   bool
	With       string // the name of another argument that cannot be given without this one
	Kind       ArgKind
	Min, Max   float64  // the bounds of ArgWhole and ArgNumber; the longest ArgDuration in seconds, 0 = ten years
	Choices    []string // the values of an ArgChoice; a form may offer more from the snapshot
	Positional bool     // on the command line, the value follows the target, without a flag
	Clears     bool     // an empty value is allowed, and clears the current one
	Empty      string   // what an empty value means, such as every domain; "" = nothing, or it Clears
	Or         string   // a word that an ArgNumber accepts in place of a number, such as none
	Help       string   // one line; "" = the choices
}

// Hint says which values are accepted: Explained; if that is empty, the choices.
func (a Arg) Hint() string { return cmp.Or(a.Explained(), strings.Join(a.Options(), " or ")) }

// Explained returns Help and what an empty value means.
func (a Arg) Explained() string {
	if a.Empty == "" {
		return a.Help
	}
	return strings.TrimPrefix(a.Help+"; empty = "+a.Empty, "; ")
}

// Options returns the values to choose from in a form; nil = the value is typed.
func (a Arg) Options() []string {
	switch {
	case !a.Required && (a.Kind == ArgChoice || a.Kind == ArgSwitch):
		return nil // an empty value has a meaning, so the value must be typed
	case a.Kind == ArgSwitch:
		return []string{"true", "false"}
	}
	return a.Choices
}

// Check returns a usage error if the value is not valid for the argument.
func (a Arg) Check(v string) error {
	if v == "" {
		if a.Required {
			return &Error{Kind: KindUsage, What: Clean(a.Name + " is needed"), Where: Clean(Choose(a.Positional, "", a.Where())), Do: Clean(a.Hint())}
		}
		return nil
	}
	if err := CheckUTF8(a.Where(), v); err != nil && a.Kind != ArgObject { // CheckObject has other advice
		return err
	}
	what, do := "", a.Hint()
	switch a.Kind {
	case ArgObject:
		return CheckObject(a.Where(), v)
	case ArgText:
		n := utf8.RuneCountInString(v)
		switch {
		case a.Max == 0 || n <= int(a.Max) && (!a.Required || strings.TrimSpace(v) != ""):
			return nil
		case !a.Required:
			return &Error{Kind: KindUsage, What: Clean(fmt.Sprintf("the %s must have at most %.0f characters, not %d", a.Name, a.Max, n)), Where: Clean(a.Where()), Do: Clean("shorten it")}
		}
		return &Error{Kind: KindUsage, What: Clean(fmt.Sprintf("a %s must have 1 to %.0f characters", a.Name, a.Max)), Where: Clean(a.Where()), Do: Clean(do)}
	case ArgWord:
		if strings.ContainsAny(v, " \t,") {
			what = "not one word, without spaces or commas"
		}
	case ArgDuration:
		n, err := Seconds(a.Where(), v)
		if err != nil || a.Max == 0 || float64(n) <= a.Max {
			return err
		}
		what, do = "longer than "+Span(int64(a.Max)), ""
	case ArgWhole:
		if n, err := strconv.ParseInt(v, 10, 64); err != nil || float64(n) < a.Min || float64(n) > a.Max {
			what = "not a whole number " + a.bounds()
		}
	case ArgNumber:
		if n, err := strconv.ParseFloat(v, 64); v != a.Or && (err != nil || !(n >= a.Min && n <= a.Max) || strings.ContainsAny(v, "xX_")) { // hexadecimal
			what = "not a number " + a.bounds() + Choose(a.Or == "", "", ", nor "+a.Or)
		}
	case ArgChoice:
		if !slices.Contains(a.Choices, v) {
			what, do = "none of "+strings.Join(a.Choices, ", "), ""
		}
	case ArgSwitch:
		if v != "true" && v != "false" {
			what, do = "neither true nor false", ""
		}
	}
	if what == "" {
		return nil
	}
	return &Error{Kind: KindUsage, What: Clean(strconv.Quote(v) + " is " + what), Where: Clean(a.Where()), Do: Clean(do)}
}

// MostReason is how many characters a reason, and the comment of an acknowledgement, may have.
const MostReason = 2000

// MostActor is how many characters the name of an actor may have.
const MostActor = 200

// CheckActor returns a configuration error if the text cannot be the actor of an action.
func CheckActor(actor string) error {
	switch {
	case strings.TrimSpace(actor) == "":
		return NewError(KindConfig, "nobody is named as the actor, and this process has no login name", "actor", "give --actor NAME or set QTOP_ACTOR")
	case utf8.RuneCountInString(actor) > MostActor:
		return NewError(KindConfig, fmt.Sprintf("the actor has more than %d characters", MostActor), "actor", "shorten it in --actor or QTOP_ACTOR")
	}
	return nil
}

// CheckReason returns a usage error if the text cannot be the reason of an action.
func CheckReason(reason string) error {
	switch {
	case strings.TrimSpace(reason) == "":
		return NewError(KindUsage, "a reason is needed", "", "--reason TEXT")
	case utf8.RuneCountInString(reason) > MostReason:
		return NewError(KindUsage, fmt.Sprintf("the reason has more than %d characters", MostReason), "--reason", "shorten it")
	}
	return CheckUTF8("--reason", reason)
}

func (a Arg) bounds() string {
	return "from " + strconv.FormatFloat(a.Min, 'f', -1, 64) + " to " + strconv.FormatFloat(a.Max, 'f', -1, 64)
}

// Where returns the name of the argument as it is on the command line.
func (a Arg) Where() string {
	if a.Positional {
		return strings.ToUpper(a.Name)
	}
	return "--" + a.Name
}

// Check returns a usage error for the first argument whose given value is not valid.
func (a Action) Check(args map[string]string) error {
	for _, arg := range a.Args {
		if v := args[arg.Name]; v != "" {
			if err := arg.Check(v); err != nil {
				return err
			}
		}
	}
	return nil
}

// Complete sets arguments that are left out to their defaults, and returns a usage error for
// missing or invalid ones. An argument that was given as empty stays empty.
func (a Action) Complete(args map[string]string) error {
	for _, arg := range a.Args {
		if _, given := args[arg.Name]; !given && arg.Default != "" {
			args[arg.Name] = arg.Default
		}
		if err := arg.Check(args[arg.Name]); err != nil {
			return err
		}
	}
	for _, arg := range a.Args {
		if err := arg.Missing(args); err != nil {
			return err
		}
	}
	return nil
}

// Missing returns a usage error if args lack this argument but have the one that needs it (With).
func (a Arg) Missing(args map[string]string) error {
	if a.With == "" || args[a.With] == "" || args[a.Name] != "" {
		return nil
	}
	return &Error{Kind: KindUsage, What: Clean(fmt.Sprintf("%s is missing: %s %s needs one", a.Name, a.With, args[a.With])), Where: Clean(a.Where()), Do: Clean(a.Hint())}
}

// longest is the longest duration that an operator can enter, in days: ten years.
const longest = 3650

// Duration parses a duration as an operator writes it, such as 500ms, 90s, 2h30m, 3d or 1w, or as Go
// does, such as 0 or -1s.
func Duration(text string) (time.Duration, bool) {
	if d, ok := parseDuration(text); ok {
		return d, true
	}
	d, err := time.ParseDuration(text)
	return d, err == nil
}

// Switch parses a switch as an operator writes it: on and off, yes and no, and the words that Go knows,
// such as true, false, 1 and 0.
func Switch(text string) (on, ok bool) {
	switch strings.ToLower(text) {
	case "on", "yes":
		return true, true
	case "off", "no":
		return false, true
	}
	on, err := strconv.ParseBool(text)
	return on, err == nil
}

// Seconds parses a duration such as 30m, 90s, 2h30m, 1d or 1w into seconds; name is the argument
// that errors mention.
func Seconds(name, text string) (int64, error) {
	d, ok := parseDuration(strings.TrimSpace(text))
	if !ok || d < time.Second || d > longest*24*time.Hour {
		return 0, &Error{Kind: KindUsage, What: Clean(fmt.Sprintf("%q is not a duration from a second to ten years", text)), Where: Clean(name), Do: Clean("write it like 90s, 30m, 2h30m, 1d or 1w")}
	}
	return int64(d.Seconds()), nil
}
