package builtin_test

import (
	"testing"

	"github.com/gleaner-dev/gleaner/policies/builtin"
	"github.com/gleaner-dev/gleaner/policies/policytest"
)

func TestEvaluate_MatchesKubernetes(t *testing.T) {
	policytest.Run(t, builtin.Policy{}, "../policytest/testdata/default.yaml")
}

func TestEvaluate_Cases(t *testing.T) {
	policytest.Run(t, builtin.Policy{}, "testdata/cases.yaml")
}
