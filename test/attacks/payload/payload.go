// Package payload generates modules that attack the operator that loads them, and the
// objects with which a tenant submits them. It does not run them.
package payload

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"fmt"
	"math"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Group and Version of the custom resources.
const (
	Group   = "gleaner.dev"
	Version = "v1alpha1"
)

// A Payload is a malicious module, and the objects that a tenant creates to have it loaded.
type Payload struct {
	Name string // a DNS label

	// Rego or Wasm returns the module, given the memory limit in bytes.
	Rego func() string
	Wasm func(memory int64) []byte

	Copies   int // number of modules, each with a digest of its own; 0 is 1
	Policies int // number of GCPolicies in Monitor mode that use the first; 0 loads it only
	Orphans  int // number of objects that the policies are evaluated for

	// Limits to request, as far as the API server accepts them.
	Limits Limits
}

// Limits are the limits of a module. Empty fields mean defaults.
type Limits struct {
	Fuel    int64
	Memory  string // a quantity
	Timeout string // a duration
}

// FuelLimits, MemoryLimits and TimeoutLimits are the values that an attacker tries, the largest
// first and the default last.
var (
	FuelLimits    = []int64{math.MaxInt64, 1e15, 1e13, 1e12, 1e11, 1e10, 5e9, 2e9, 1e9, 5e8, 0}
	MemoryLimits  = []string{"1Gi", "512Mi", "256Mi", "128Mi", "64Mi", ""}
	TimeoutLimits = []string{"1m", "30s", "20s", "10s", "5s", ""}
)

// Fit returns the highest accepted limits up to those requested,
// each tested by itself.
func (l Limits) Fit(accepted func(Limits) bool) Limits {
	return Limits{
		Fuel:    highest(l.Fuel, FuelLimits, func(v int64) bool { return accepted(Limits{Fuel: v}) }),
		Memory:  highest(l.Memory, MemoryLimits, func(v string) bool { return accepted(Limits{Memory: v}) }),
		Timeout: highest(l.Timeout, TimeoutLimits, func(v string) bool { return accepted(Limits{Timeout: v}) }),
	}
}

func highest[T comparable](requested T, candidates []T, accepted func(T) bool) T {
	var byDefault T
	if requested == byDefault {
		return byDefault
	}
	for _, candidate := range candidates {
		if candidate == byDefault || accepted(candidate) {
			return candidate
		}
	}
	return byDefault
}

const defaultMemory = 64 << 20

func (l Limits) memory() int64 {
	mebibytes, err := strconv.ParseInt(strings.TrimSuffix(l.Memory, "Mi"), 10, 64)
	switch {
	case l.Memory == "1Gi":
		return 1 << 30
	case err != nil:
		return defaultMemory
	}
	return mebibytes << 20
}

func (l Limits) document() map[string]any {
	document := map[string]any{}
	if l.Fuel != 0 {
		document["fuel"] = l.Fuel
	}
	if l.Memory != "" {
		document["memory"] = l.Memory
	}
	if l.Timeout != "" {
		document["timeout"] = l.Timeout
	}
	return document
}

// Module returns the PolicyModules for a namespace, and the ConfigMaps with their content
// unless they are inline. Wasm modules are compressed.
func (p Payload) Module(namespace string) ([]*unstructured.Unstructured, error) {
	var list []*unstructured.Unstructured
	for i := range max(p.Copies, 1) {
		name := p.Name
		if i > 0 {
			name = fmt.Sprintf("%s-copy-%d", p.Name, i)
		}
		objects, err := p.copy(namespace, name, i)
		if err != nil {
			return nil, fmt.Errorf("write %s: %w", name, err)
		}
		list = append(list, objects...)
	}
	return list, nil
}

// copy returns the n-th copy of the module, which has its own digest.
func (p Payload) copy(namespace, name string, n int) ([]*unstructured.Unstructured, error) {
	spec := map[string]any{}
	if limits := p.Limits.document(); len(limits) > 0 {
		spec["limits"] = limits
	}
	if p.Rego != nil {
		spec["rego"] = map[string]any{"inline": fmt.Sprintf("%s# copy %d\n", p.Rego(), n)}
		return []*unstructured.Unstructured{Object("PolicyModule", namespace, name, spec)}, nil
	}
	const customSection = "\x00\x02\x01"
	packed, err := compress(append(append(p.Wasm(p.Limits.memory()), customSection...), 'a'+byte(n)))
	if err != nil {
		return nil, err
	}
	source := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "binaryData": map[string]any{"module": base64.StdEncoding.EncodeToString(packed)},
	}}
	identify(source, namespace, name+"-source")
	spec["wasm"] = map[string]any{"configMap": map[string]any{"name": name + "-source", "key": "module"}}
	return []*unstructured.Unstructured{source, Object("PolicyModule", namespace, name, spec)}, nil
}

// GCPolicies returns the policies that use the module.
func (p Payload) GCPolicies(namespace string) []*unstructured.Unstructured {
	var list []*unstructured.Unstructured
	for i := range p.Policies {
		list = append(list, Object("GCPolicy", namespace, fmt.Sprintf("%s-%d", p.Name, i), map[string]any{
			"resources": []any{map[string]any{"apiGroups": []any{""}, "resources": []any{"configmaps"}}},
			"objectSelector": map[string]any{
				"matchLabels": map[string]any{Label: p.Name},
			},
			"module": map[string]any{"name": p.Name},
			"needs":  "Reference",
			"mode":   "Monitor",
		}))
	}
	return list
}

// Label is the label of the objects that the policies of a payload select; its value is the payload's name.
const Label = "attacks.gleaner.dev/payload"

// Object returns a custom resource.
func Object(kind, namespace, objectName string, spec map[string]any) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": Group + "/" + Version, "kind": kind, "spec": spec}}
	identify(o, namespace, objectName)
	return o
}

func identify(o *unstructured.Unstructured, namespace, objectName string) {
	o.SetName(objectName)
	if namespace != metav1.NamespaceNone {
		o.SetNamespace(namespace)
	}
}

func compress(code []byte) ([]byte, error) {
	var packed bytes.Buffer
	w, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err = w.Write(code); err == nil {
		err = w.Close()
	}
	return packed.Bytes(), err
}
