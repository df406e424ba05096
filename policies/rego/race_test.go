//go:build race

package rego

func init() { underRace = true }
