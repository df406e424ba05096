package rego

import (
	"os"
	"testing"

	"github.com/gleaner-dev/gleaner/policies/policytest"
)

// One file of cases for all engines: policies/policytest asks the same of the
// policy in Go, built as wasm.
func TestKeepData_PassesSharedCases(t *testing.T) {
	const folder = "../policytest/testdata/"
	suite, err := policytest.LoadSuite(folder + "keep-data.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range suite.Modules {
		text, err := os.ReadFile(folder + name)
		if err != nil {
			t.Fatal(err)
		}
		policy := newPolicy(t, newEngine(t), Limits{}, File{Name: name, Text: string(text)})
		policytest.Run(t, policy, folder+"keep-data.yaml")
	}
	if len(suite.Modules) == 0 {
		t.Error("the file names no module")
	}
}
