package preview

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gleaner-dev/gleaner/devcluster/devtest"
	"github.com/gleaner-dev/gleaner/test/pins"
)

// file writes a file in which NS is the test's namespace, and returns its name.
func (w *env) file(text string) string {
	w.Helper()
	name := filepath.Join(w.TempDir(), "objects.yaml")
	if err := os.WriteFile(name, []byte(strings.ReplaceAll(text, "NS", w.ns)), 0o600); err != nil {
		w.Fatal(err)
	}
	return name
}

// kubectlApply applies objects to the test's namespace.
func (w *env) kubectlApply(text string) {
	w.Helper()
	if _, err := devtest.Shared(w.T).Kubectl(w.Context(), "apply", "-n", w.ns, "-f", w.file(text)); err != nil {
		w.Fatal(err)
	}
}

// expectRetention runs the command, and checks that it prints the lines, in which NS is the test's namespace.
func (w *env) expectRetention(args []string, lines ...string) {
	w.Helper()
	out, code := w.gleaner(w.Context(), "", append([]string{"retention"}, args...)...)
	words := strings.Join(strings.Fields(out), " ")
	for _, line := range lines {
		if line = strings.ReplaceAll(line, "NS", w.ns); !strings.Contains(words, strings.TrimSpace(line)) {
			w.Errorf("no %q in:\n%s", line, out)
		}
	}
	if code != 0 {
		w.Errorf("exit code %d", code)
	}
}

const retained = `
{apiVersion: v1, kind: Secret, metadata: {name: a, labels: {app: web}}}
---
{apiVersion: v1, kind: Secret, metadata: {name: b, labels: {app: web}}}
---
{apiVersion: v1, kind: Secret, metadata: {name: used, labels: {app: web}}}
---
{apiVersion: v1, kind: Secret, metadata: {name: data, labels: {app: web, tier: data}}}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: puller}, imagePullSecrets: [{name: used}]}
---
apiVersion: gleaner.dev/v1alpha1
kind: RetentionPolicy
metadata: {name: all}
spec: {resources: [{apiGroups: [""], resources: [secrets]}], keepLast: 0}
---
apiVersion: gleaner.dev/v1alpha1
kind: RetentionPolicy
metadata: {name: data}
spec: {mode: Enforce, resources: [{apiGroups: [""], resources: [secrets]}], objectSelector: {matchLabels: {tier: data}}, maxAge: 1000h}
`

func TestPreviewRetention_ShowsWhatIsRemovedAndWhy(t *testing.T) {
	w := newEnv(t)
	w.kubectlApply(retained)
	w.expectRetention([]string{"--kept"},
		"RetentionPolicy NS/all Monitor 4 2 0 2", "RetentionPolicy NS/data Enforce 1 0 1 0",
		"Removed now:", "NS Secret/a RetentionPolicy NS/all (Monitor) KeepLast keepLast: 0", "NS Secret/b RetentionPolicy NS/all (Monitor) KeepLast keepLast: 0",
		"Removed next, if nothing changes:", "NS Secret/data RetentionPolicy NS/data 41d",
		"Kept:", "NS Secret/data RetentionPolicy NS/all (Monitor) KeptByPolicy RetentionPolicy NS/data", "NS Secret/used RetentionPolicy NS/all (Monitor) InUse",
	)
	out, _ := w.gleaner(t.Context(), "", "retention", "--policy", w.ns+"/all", "-o", "name") // those of the same second are in any order
	if lines := slices.Sorted(strings.Lines(out)); !slices.Equal(lines, []string{"secret/a\n", "secret/b\n"}) {
		t.Errorf("-o name prints %q", lines)
	}
}

func TestPreviewRetention_EvaluatesPoliciesWithTheHookRetain(t *testing.T) {
	w := newEnv(t)
	const module = `package gleaner

retain := {"decision": "Remove"} if input.object.metadata.labels.tier == "bronze"

else := {"decision": "Keep", "reason": sprintf("%s of %s: gold stays", [input.retention.limit, input.retention.policy])}`
	w.kubectlApply(`
{apiVersion: v1, kind: Secret, metadata: {name: debugged, labels: {keep: fixed}}}
---
{apiVersion: v1, kind: Secret, metadata: {name: gold, labels: {keep: module, tier: gold}}}
---
{apiVersion: v1, kind: Secret, metadata: {name: bronze, labels: {keep: module, tier: bronze}}}
---
{apiVersion: v1, kind: Secret, metadata: {name: other, labels: {keep: missing}}}
---
{apiVersion: v1, kind: Secret, metadata: {name: old}}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: reader}}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: reader}, rules: [{apiGroups: [""], resources: [secrets], verbs: [get]}]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: reader}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: reader}
subjects: [{kind: ServiceAccount, name: reader, namespace: NS}]
---
apiVersion: gleaner.dev/v1alpha1
kind: RetentionPolicy
metadata: {name: all}
spec: {resources: [{apiGroups: [""], resources: [secrets]}], keepLast: 0}
---
{apiVersion: gleaner.dev/v1alpha1, kind: PolicyModule, metadata: {name: tier}, spec: {rego: {inline: ` + strconv.Quote(module) + `}}}
---
apiVersion: gleaner.dev/v1alpha1
kind: GCPolicy
metadata: {name: tier}
spec:
  mode: Enforce
  resources: [{apiGroups: [""], resources: [secrets]}]
  objectSelector: {matchLabels: {keep: module}}
  module: {name: tier, digest: "` + pins.Of(module) + `"}
  needs: Object
  serviceAccount: {name: reader}
---
apiVersion: gleaner.dev/v1alpha1
kind: GCPolicy
metadata: {name: fixed}
spec:
  mode: Enforce
  resources: [{apiGroups: [""], resources: [secrets]}]
  objectSelector: {matchLabels: {keep: fixed}}
  fixed: {retain: {decision: Keep, reason: under investigation}}
---
apiVersion: gleaner.dev/v1alpha1
kind: GCPolicy
metadata: {name: missing}
spec:
  mode: Enforce
  resources: [{apiGroups: [""], resources: [secrets]}]
  objectSelector: {matchLabels: {keep: missing}}
  module: {name: missing}
  needs: Object
  serviceAccount: {name: reader}`)
	w.expectRetention([]string{"--kept"},
		"SELECTED REMOVED NOW LATER KEPT UNKNOWN", "RetentionPolicy NS/all Monitor 5 2 0 2 1", "NS Secret/old RetentionPolicy NS/all (Monitor) KeepLast keepLast: 0",
		"NS Secret/debugged RetentionPolicy NS/all (Monitor) KeptByPolicy GCPolicy NS/fixed: under investigation",
		"NS Secret/bronze RetentionPolicy NS/all (Monitor) KeepLast keepLast: 0",
		"NS Secret/gold RetentionPolicy NS/all (Monitor) KeptByPolicy GCPolicy NS/tier: KeepLast of all: gold stays",
		"Unknown, since policies with the hook retain could not be evaluated:", "NS Secret/other RetentionPolicy NS/all (Monitor) KeepLast policies could not be evaluated: policy is not ready: there is no PolicyModule NS/missing",
	)
}

// A user who may only read what is in one namespace sees what its policies remove, and which others may keep it.
func TestPreviewRetention_WithPermissionsInOneNamespace(t *testing.T) {
	w := newEnv(t)
	w.kubectlApply(`
{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: old, labels: {app: old}}, rules: []}
---
apiVersion: gleaner.dev/v1alpha1
kind: RetentionPolicy
metadata: {name: all}
spec: {resources: [{apiGroups: [rbac.authorization.k8s.io], resources: [roles]}], objectSelector: {matchLabels: {app: old}}, keepLast: 0}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: limited}
rules:
  - {apiGroups: ["*"], resources: ["*"], verbs: [get, list]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: limited}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: limited}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: limited-NS}]`)
	w.expectRetention([]string{"--as=limited-" + w.ns},
		"RetentionPolicy NS/all Monitor 1 1 0 0", "NS Role/old RetentionPolicy NS/all (Monitor) KeepLast keepLast: 0",
		"Could not be read: ClusterRetentionPolicy, which may keep objects: list ClusterRetentionPolicy: ", "policies with the hook retain, which may keep objects: ",
	)
}

func TestPreviewRetention_OfAPolicyInAFile(t *testing.T) {
	w := newEnv(t)
	w.kubectlApply(retained)
	proposed := w.file(`
apiVersion: gleaner.dev/v1alpha1
kind: RetentionPolicy
metadata: {name: unused}
spec: {mode: Enforce, resources: [{apiGroups: [""], resources: [secrets]}], unreferencedFor: 240h, objectSelector: {matchLabels: {app: web}}}`)
	out, code := w.gleaner(t.Context(), "", "retention", "-f", proposed, "--policy", w.ns+"/unused", "-o", "json")
	for _, part := range []string{`"removed": 0`, `"later": 3`, `"kept": 1`, `"outcome": "Later"`, `"time": "`} {
		if !strings.Contains(out, part) {
			t.Errorf("no %s in:\n%s", part, out)
		}
	}
	if code != 0 {
		t.Errorf("exit code %d", code)
	}
}

func TestPreviewRetention_WrongInput(t *testing.T) {
	w := newEnv(t)
	w.kubectlApply(retained)
	for name, c := range map[string]struct {
		args []string
		code int
		want string
	}{
		"an unknown policy": {[]string{"--policy", "missing"}, 2, "--policy=missing: not found: use one of "},
		"another resource":  {[]string{"-f", w.file("{apiVersion: v1, kind: Secret, metadata: {name: a}}")}, 2, "Secret a is not a retention policy: use RetentionPolicy or ClusterRetentionPolicy"},
		"an invalid policy": {[]string{"-f", w.file("{apiVersion: gleaner.dev/v1alpha1, kind: RetentionPolicy, metadata: {name: a}, spec: {resources: [{apiGroups: [batch], resources: [jobs]}]}}")},
			1, "without a limit, nothing is removed: write at least one of"},
		"an argument": {[]string{"jobs"}, 2, "unknown command"},
	} {
		t.Run(name, func(t *testing.T) {
			out, code := w.gleaner(t.Context(), "", append([]string{"retention"}, c.args...)...)
			if code != c.code || !strings.Contains(out, c.want) {
				t.Errorf("exit code %d:\n%s", code, out)
			}
		})
	}
}
