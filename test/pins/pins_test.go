package pins_test

import (
	"strings"
	"testing"

	"github.com/gleaner-dev/gleaner/test/pins"
)

func TestManifest_PinsInlineModules(t *testing.T) {
	const text = `apiVersion: gleaner.dev/v1alpha1
kind: PolicyModule
metadata: {name: m, namespace: a}
spec:
  rego:
    inline: |
      package gleaner
---
apiVersion: gleaner.dev/v1alpha1
kind: GCPolicy
metadata: {name: p, namespace: a}
spec:
  module: {name: m}
  mode: Enforce
---
apiVersion: gleaner.dev/v1alpha1
kind: GCPolicy
metadata: {name: p, namespace: b}
spec:
  module: {name: m}
`
	want := strings.Replace(text, "module: {name: m}\n  mode", "module: {name: m, digest: "+pins.Of("package gleaner\n")+"}\n  mode", 1)
	if got := pins.Manifest(text); got != want {
		t.Errorf("got %s", got)
	}
}
