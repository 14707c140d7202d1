package viewstest

import (
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"
)

// OneOfEach returns the rich world with 1 as every number.
func OneOfEach() World {
	w := RichWorld()
	Ones(reflect.ValueOf(&w).Elem())
	return w
}

// Ones sets every whole number inside v to 1.
func Ones(v reflect.Value) {
	switch v.Kind() { //nolint:exhaustive // other kinds stay unchanged
	case reflect.Pointer:
		if !v.IsNil() {
			Ones(v.Elem())
		}
	case reflect.Slice:
		for i := range v.Len() {
			Ones(v.Index(i))
		}
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			return
		}
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				Ones(v.Field(i))
			}
		}
	case reflect.Int, reflect.Int32, reflect.Int64:
		if v.Type() != reflect.TypeFor[time.Duration]() {
			v.SetInt(1)
		}
	}
}

// The words that may be between a number and its noun, and words with s at their end that are no
// plural.
var (
	adjectives = strings.Fields("more distant dead open live waiting new selected active requeued leased webhook event job bulk worker staged alert")
	singulars  = strings.Fields("is was has does its this less class address status process s waits follows subscribes sends returns dies")
	verbs      = strings.Fields("wait are have do need follow")
	oneOf      = regexp.MustCompile(`(?:^|[^\w.,:/#@%×≥-])1 ([a-z]+(?: [a-z]+)*)`)
)

// Plurals returns each 1 in a text that is followed by a word in the plural, with that word.
func Plurals(text string) []string {
	var out []string
	for _, found := range oneOf.FindAllStringSubmatch(text, -1) {
		for _, word := range strings.Fields(found[1]) {
			if slices.Contains(adjectives, word) {
				continue
			}
			if slices.Contains(verbs, word) || strings.HasSuffix(word, "s") && !slices.Contains(singulars, word) {
				out = append(out, "1 "+found[1])
			}
			break
		}
	}
	return out
}
