package fixed_test

import (
	"context"
	"fmt"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/policies/fixed"
)

func ExampleNew() {
	policy, err := fixed.New("keep", map[hostabi.Hook][]byte{hostabi.HookCollect: []byte(`{"decision": "Orphan"}`)})
	if err != nil {
		fmt.Println(err)
		return
	}
	verdict, err := policy.Evaluate(context.Background(), hostabi.Request{Hook: hostabi.HookCollect})
	fmt.Println(verdict.Decision, err)
	// Output: Orphan <nil>
}
