// Command guest is what a policy in stock Go amounts to: it parses a request,
// looks at it, and writes a verdict, both JSON.
package main

import (
	"encoding/json"
	"strings"
)

var request = []byte(`{"apiVersion":"abi.gleaner.dev/v1","hook":"collect","policy":{"name":"keep-volumes","namespace":"",
"settings":{"keep":["a","b","c"],"grace":"24h"}},"object":{"apiVersion":"v1","kind":"PersistentVolumeClaim","metadata":{
"name":"data-postgres-0","namespace":"shop","uid":"8a2d3c1e-5a3f-4d0e-9c55-0e6f2f1f8f11","resourceVersion":"184467",
"labels":{"app":"postgres","tier":"database","env":"prod"},"annotations":{"owner":"team-a","note":"do not delete"}},
"spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"10Gi"}}}},"requested":"Unspecified","attempt":1}`)

func main() {}

// parse returns the length of the verdict.
//
//go:wasmexport parse
func parse() int32 {
	var r map[string]any
	if err := json.Unmarshal(request, &r); err != nil {
		return -1
	}
	reason := []string{}
	for key := range r["object"].(map[string]any) {
		reason = append(reason, strings.ToUpper(key))
	}
	verdict, err := json.Marshal(map[string]any{"decision": "Delete", "reasons": len(reason), "request": r["policy"]})
	if err != nil {
		return -2
	}
	return int32(len(verdict))
}

// primes returns how many primes there are below a number.
//
//go:wasmexport primes
func primes(below int32) int32 {
	n := int32(0)
	for i := int32(2); i < below; i++ {
		prime := true
		for d := int32(2); d*d <= i; d++ {
			if i%d == 0 {
				prime = false
				break
			}
		}
		if prime {
			n++
		}
	}
	return n
}

// nest calls itself so many times.
//
//go:wasmexport nest
func nest(depth int32) int32 {
	if depth == 0 {
		return 0
	}
	return nest(depth-1) + 1
}
