//go:build race

package wasm_test

func init() { underRace = true }
