package main

import (
	"encoding/json"
	"maps"
	"strconv"
)

func values[T ~string](list []T) []any {
	var out []any
	for _, v := range list {
		out = append(out, string(v))
	}
	return out
}

func number(n int64) json.Number { return json.Number(strconv.FormatInt(n, 10)) }

// atLeast is nothing where nothing is asked for.
func atLeast(n uint64) *uint64 {
	if n == 0 {
		return nil
	}
	return &n
}

// with is both maps in one.
func with(a, b map[string]constraint) map[string]constraint {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return all
}
