package rego_test

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/policies/rego"
)

const keepLabeled = `package gleaner

collect := {"decision": "Orphan", "reason": "labeled keep"} if input.object.metadata.labels.keep == "true"

else := {"decision": "Abstain"}
`

func ExampleNewPolicy() {
	engine, err := rego.New(rego.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer engine.Close()
	module, err := engine.Load(context.Background(), []rego.File{{Name: "keep.rego", Text: keepLabeled}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer module.Close()
	policy, err := rego.NewPolicy(context.Background(), module, rego.Options{Name: "keep-labeled"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer policy.Close()

	request := hostabi.Request{Hook: hostabi.HookCollect, Attempt: 1, Round: 1}
	object := `{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "shop", "labels": {"keep": "true"}}}`
	if err := json.Unmarshal([]byte(object), &request.Object); err != nil {
		fmt.Println(err)
		return
	}
	verdict, err := policy.Evaluate(context.Background(), request)
	fmt.Println(verdict.Decision, verdict.Reason, err)
	// Output: Orphan labeled keep <nil>
}
