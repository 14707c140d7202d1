package main

import (
	"strconv"

	"github.com/spf13/pflag"
)

// wholeFlag adds a flag whose value is a whole number in decimals; in n is the default. pflag would
// read 010 as 8.
func wholeFlag[N int | int64](f *pflag.FlagSet, n *N, name, help string) {
	f.Var(wholeValue[N]{n}, name, help)
}

type wholeValue[N int | int64] struct{ n *N }

func (v wholeValue[N]) Set(text string) error {
	n, err := strconv.ParseInt(text, 10, 64)
	if err == nil {
		*v.n = N(n)
	}
	return err
}

func (v wholeValue[N]) String() string {
	if v.n == nil {
		return "0" // the zero value, which pflag compares with the default
	}
	return strconv.FormatInt(int64(*v.n), 10)
}

func (wholeValue[N]) Type() string { return "int" }
