package policies

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
)

// protecting applies a ClusterGCPolicy in Enforce mode for ConfigMaps of the test's namespace, and waits until it is enforced.
// Name is unique within the test.
func (w *env) protecting(name, spec string) *unstructured.Unstructured {
	w.Helper()
	p := w.applyPolicy(fmt.Sprintf(`
kind: ClusterGCPolicy
metadata: {name: NS-%s}
spec:
  resources: [{apiGroups: [""], resources: [configmaps]}]
  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: NS}}
  mode: Enforce
%s`, name, spec))
	w.waitForCondition(p, "Enforcing", metav1.ConditionTrue, "Enforcing", "")
	return p
}

const denyLabeled = `
  objectSelector: {matchLabels: {keep: "true"}}
  fixed: {protect: {decision: Deny, reason: "it has keep=true: remove that label first"}}`

var keep = map[string]string{"keep": "true"}

// waitForDenied waits until a dry run of a deletion is denied with a message, and nothing else.
func (w *env) waitForDenied(o *unstructured.Unstructured, message string) {
	w.Helper()
	w.eventually(func() error { return w.checkDenied(o, message) })
}

func (w *env) checkDenied(o *unstructured.Unstructured, message string) error {
	err := w.tryDelete(o, metav1.DryRunAll)
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), message) {
		return fmt.Errorf("deletion of %s: %w", o.GetName(), err)
	}
	return nil
}

func (w *env) waitForAllowed(o *unstructured.Unstructured) {
	w.Helper()
	w.eventually(func() error { return w.tryDelete(o, metav1.DryRunAll) })
}

func (w *env) tryDelete(o *unstructured.Unstructured, dryRun ...string) error {
	return w.client(o).Delete(w.Context(), o.GetName(), metav1.DeleteOptions{DryRun: dryRun})
}

func TestProtect_FixedVerdict_DeniesUsers(t *testing.T) {
	w := newEnv(t)
	p := w.protecting("deny", denyLabeled)
	kept, other := w.createObject("ConfigMap", "kept", keep), w.createConfigMap("other")
	w.waitForDenied(kept, "ClusterGCPolicy "+w.ns+"-deny denies this deletion: it has keep=true: remove that label first")
	if err := w.tryDelete(kept); !apierrors.IsForbidden(err) {
		t.Errorf("deletion: %v", err)
	}
	// kubectl delete --all
	if err := w.client(other).DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "keep"}); !apierrors.IsForbidden(err) {
		t.Errorf("deletion of all: %v", err)
	}
	if w.get(kept).GetDeletionTimestamp() != nil || w.get(kept).GetName() == "" {
		t.Error("it was deleted")
	}
	w.delete(other)
	w.waitForDeletion(other)

	w.patch(kept, `{"metadata":{"labels":{"keep":null}}}`)
	w.waitForAllowed(kept)
	w.patch(kept, `{"metadata":{"labels":{"keep":"true"}}}`)
	w.waitForDenied(kept, "")
	w.delete(p)
	w.waitForAllowed(kept)
}

func TestProtect_GarbageCollectionAndNamespacesAreExempt(t *testing.T) {
	w := newEnv(t)
	other := newEnvOn(t, w.config, w.collector)
	w.protecting("deny", denyLabeled)
	owner := w.createConfigMap("owner")
	dependent := w.createObject("ConfigMap", "dependent", keep, owner)
	w.waitForDenied(dependent, "keep=true")
	w.delete(owner)
	w.waitForDeletion(dependent)

	other.protecting("deny", denyLabeled)
	content := other.createObject("ConfigMap", "content", keep)
	other.waitForDenied(content, "keep=true")
	namespace := &unstructured.Unstructured{}
	namespace.SetKind("Namespace")
	namespace.SetName(other.ns)
	if err := other.client(namespace).Delete(t.Context(), other.ns, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	other.waitForDeletion(content)
}

func TestProtect_AnAllowedObjectIsAnExceptionByPrecedence(t *testing.T) {
	w := newEnv(t)
	w.protecting("deny", `
  fixed: {protect: {decision: Deny, reason: ask first}}`)
	w.protecting("allow", `
  priority: 1
  objectSelector: {matchExpressions: [{key: tier, operator: In, values: [test, it_s]}]}
  matchConditions: [{name: not-precious, expression: "!has(object.metadata.annotations) || !('precious' in object.metadata.annotations)"}]
  fixed: {protect: {decision: Allow}}`)
	w.protecting("too-late", `
  priority: -1
  fixed: {protect: {decision: Allow}}`)
	denied := w.createConfigMap("denied")
	w.waitForDenied(denied, "ask first")
	allowed := w.createObject("ConfigMap", "allowed", map[string]string{"tier": "it_s"})
	w.waitForAllowed(allowed)
	w.patch(allowed, `{"metadata":{"annotations":{"precious":""}}}`)
	if err := w.checkDenied(allowed, "ask first"); err != nil {
		t.Error(err)
	}
	w.patch(allowed, `{"metadata":{"annotations":null}}`)
	w.delete(allowed)
	w.waitForDeletion(allowed)
}

func TestProtect_MatchConditionsSelect_AndAFaultKeepsTheObject(t *testing.T) {
	w := newEnv(t)
	w.protecting("deny", `
  matchConditions: [{name: large, expression: "int(object.data.size) > 10"}]
  fixed: {protect: {decision: Deny, reason: it is large}}`)
	sized := func(name, size string) *unstructured.Unstructured {
		return w.apply(`{kind: ConfigMap, metadata: {name: ` + name + `}, data: {size: "` + size + `"}}`)
	}
	large, small, invalid := sized("large", "11"), sized("small", "9"), sized("invalid", "many")
	w.waitForDenied(large, "it is large")
	w.waitForAllowed(small)
	if err := w.tryDelete(invalid); err == nil || !strings.Contains(err.Error(), "-deny' denied request: ") {
		t.Errorf("deletion of an object whose condition fails: %v", err)
	}
}

// warnings collects the warnings of the API server.
type warnings struct{ all []string }

// HandleWarningHeader implements rest.WarningHandler.
func (w *warnings) HandleWarningHeader(_ int, _, text string) { w.all = append(w.all, text) }

// deleteWithWarnings deletes as a dry run, and returns the warnings.
func (w *env) deleteWithWarnings(o *unstructured.Unstructured) ([]string, error) {
	config, got := *w.config, &warnings{}
	config.WarningHandler = got
	client := dynamic.NewForConfigOrDie(&config).Resource(w.resourceOf(o.GetKind())).Namespace(w.ns)
	err := client.Delete(w.Context(), o.GetName(), metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}})
	return got.all, err
}

// waitForWarning waits until a deletion is allowed with a warning.
func (w *env) waitForWarning(o *unstructured.Unstructured, text string) {
	w.Helper()
	w.eventually(func() error {
		all, err := w.deleteWithWarnings(o)
		if err == nil && !slices.ContainsFunc(all, func(s string) bool { return strings.Contains(s, text) }) {
			err = fmt.Errorf("warnings %q", all)
		}
		return err
	})
}

func TestProtect_InMonitorMode_Warns(t *testing.T) {
	w := newEnv(t)
	w.applyPolicy(`
kind: ClusterGCPolicy
metadata: {name: NS-fixed}
spec:
  resources: [{apiGroups: [""], resources: [configmaps]}]
  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: NS}}
  fixed: {protect: {decision: Deny, reason: ask first}}`)
	w.applyProtectModule()
	w.applyPolicy(`
kind: ClusterGCPolicy
metadata: {name: NS-module}
spec:
  resources: [{apiGroups: [""], resources: [configmaps]}]
  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: NS}}
  module: {name: NS-protect}`)
	o := w.createObject("ConfigMap", "o", keep)
	w.waitForWarning(o, "ClusterGCPolicy "+w.ns+"-fixed would deny this deletion with mode: Enforce: ask first")
	w.waitForWarning(o, "ClusterGCPolicy "+w.ns+"-module would deny this deletion with mode: Enforce: ask alice")
}

// applyProtectModule applies a module that lets only members of system:masters delete objects with keep=false, and nobody
// those with keep=true.
func (w *env) applyProtectModule() {
	w.Helper()
	module := w.applyPolicy(`
kind: ClusterPolicyModule
metadata: {name: NS-protect}
spec:
  rego:
    inline: |
      package gleaner

      protect := {"decision": "Deny", "reason": "ask alice"} if input.object.metadata.labels.keep == "true"
      else := {"decision": "Allow"} if {
        input.object.metadata.labels.keep == "false"
        "system:masters" in input.userInfo.groups
      } else := {"decision": "Abstain"}`)
	w.waitForCondition(module, "Compiled", metav1.ConditionTrue, "Compiled", "protect")
}

func TestProtect_Module_DecidesAboutEachRequest(t *testing.T) {
	w := newEnv(t)
	w.applyProtectModule()
	w.protecting("module", `
  priority: 1
  module: {name: NS-protect}`)
	w.protecting("deny", `
  fixed: {protect: {decision: Deny, reason: ask first}}`)
	kept := w.createObject("ConfigMap", "kept", keep)
	w.waitForDenied(kept, "ClusterGCPolicy "+w.ns+"-module denies this deletion: ask alice")
	if err := w.tryDelete(kept); !apierrors.IsForbidden(err) {
		t.Errorf("deletion: %v", err)
	}
	entry := w.waitForDecision(kept, "DeletionDenied")
	if entry.Policy != "ClusterGCPolicy "+w.ns+"-module" || !strings.Contains(entry.Message, "requested by ") {
		t.Errorf("record %+v", entry)
	}
	// The fixed policy is evaluated after the module, also for what the module allows.
	w.waitForDenied(w.createConfigMap("other"), "ask first")
	allowed := w.createObject("ConfigMap", "allowed", map[string]string{"keep": "false"})
	w.waitForAllowed(allowed)
	w.delete(allowed)
	w.waitForDeletion(allowed)
}

func TestProtect_AFaultOfAModuleKeepsTheObject_UnlessThePolicySaysOtherwise(t *testing.T) {
	w := newEnv(t)
	module := w.applyPolicy(`
kind: ClusterPolicyModule
metadata: {name: NS-undefined}
spec: {rego: {inline: "package gleaner\nprotect := {\"decision\": \"Allow\"} if input.object.metadata.labels.never"}}`)
	w.waitForCondition(module, "Compiled", metav1.ConditionTrue, "Compiled", "protect")
	w.protecting("hold", `
  objectSelector: {matchLabels: {keep: "true"}}
  module: {name: NS-undefined}`)
	w.protecting("default", `
  objectSelector: {matchLabels: {keep: if-possible}}
  onFault: Default
  module: {name: NS-undefined}`)
	held := w.createObject("ConfigMap", "held", keep)
	w.waitForDenied(held, "ClusterGCPolicy "+w.ns+"-hold protects the object, and can't be evaluated: ")
	w.waitForAllowed(w.createObject("ConfigMap", "allowed", map[string]string{"keep": "if-possible"}))
}

func TestProtect_OnlyAClusterGCPolicyMay(t *testing.T) {
	w := newEnv(t)
	_, err := w.tryApply(`
kind: GCPolicy
metadata: {name: deny}
spec:
  resources: [{apiGroups: [""], resources: [configmaps]}]
  fixed: {protect: {decision: Deny, reason: ask first}}`)
	if err == nil || !strings.Contains(err.Error(), "only a ClusterGCPolicy can protect objects") {
		t.Error(err)
	}
	_, err = w.tryApply(`
kind: ClusterGCPolicy
metadata: {name: NS-own}
spec:
  resources: [{apiGroups: [gleaner.dev], resources: [clustergcpolicies]}]
  fixed: {protect: {decision: Deny, reason: ask first}}`)
	if err == nil || !strings.Contains(err.Error(), "must remain deletable") {
		t.Error(err)
	}
}

// While Gleaner does not run, what modules protect can't be deleted, and everything else can. Fixed verdicts don't need it.
func TestProtect_AnOutageOfGleanerBlocksWhatModulesProtectOnly(t *testing.T) {
	o := newDedicatedEnv(t)
	o.applyProtectModule()
	o.protecting("module", `
  objectSelector: {matchLabels: {keep: "true"}}
  module: {name: NS-protect}`)
	o.protecting("lenient", `
  objectSelector: {matchLabels: {keep: "if-possible"}}
  onFault: Default
  module: {name: NS-protect}`)
	o.protecting("fixed", `
  objectSelector: {matchLabels: {keep: fixed}}
  fixed: {protect: {decision: Deny, reason: ask first}}`)
	labeled := func(value string) *unstructured.Unstructured {
		return o.createObject("ConfigMap", value, map[string]string{"keep": value})
	}
	protected, lenient, fixed, other := labeled("true"), labeled("if-possible"), labeled("fixed"), o.createConfigMap("other")
	o.waitForDenied(protected, "ask alice")
	o.waitForDenied(fixed, "ask first")
	o.stopOperator()
	if err := o.tryDelete(protected); err == nil || !strings.Contains(err.Error(), "failed calling webhook") {
		t.Errorf("deletion of what a module protects: %v", err)
	}
	if err := o.checkDenied(fixed, "ask first"); err != nil {
		t.Error(err)
	}
	for _, free := range []*unstructured.Unstructured{lenient, other} {
		if err := o.tryDelete(free); err != nil {
			t.Errorf("deletion of %s: %v", free.GetName(), err)
		}
	}
	if o.get(protected).GetName() == "" {
		t.Error("it was deleted")
	}
	o.startOperator()
	o.waitForDenied(protected, "ask alice")
}

// Conditions are about objects in the preferred version: a user can't avoid them by a request in another one.
func TestProtect_ARequestInAnotherVersionIsNoWayAround(t *testing.T) {
	w := newEnv(t)
	w.applyProtectModule()
	const condition = `
  resources: [{apiGroups: [autoscaling], resources: [horizontalpodautoscalers]}]
  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: NS}}
  matchConditions: [{name: by-memory, expression: "has(object.spec.metrics) && object.spec.metrics.exists(m, m.resource.name == 'memory')"}]
  mode: Enforce
`
	w.applyPolicy("kind: ClusterGCPolicy\nmetadata: {name: NS-fixed}\nspec:" + condition + `
  objectSelector: {matchLabels: {keep: fixed}}
  fixed: {protect: {decision: Deny, reason: ask alice}}`)
	w.applyPolicy("kind: ClusterGCPolicy\nmetadata: {name: NS-module}\nspec:" + condition + `
  objectSelector: {matchLabels: {keep: "true"}}
  module: {name: NS-protect}`)
	for _, keep := range []string{"fixed", "true"} {
		o := w.apply(`
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: "` + keep + `-memory", labels: {keep: "` + keep + `"}}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}
  maxReplicas: 3
  metrics: [{type: Resource, resource: {name: memory, target: {type: Utilization, averageUtilization: 50}}}]`)
		w.waitForDenied(o, "ask alice")
		resource := resources["HorizontalPodAutoscaler"]
		resource.Version = "v1"
		err := w.objects.Resource(resource).Namespace(w.ns).Delete(t.Context(), o.GetName(), metav1.DeleteOptions{})
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "ask alice") {
			t.Errorf("keep=%s: deletion as %s: %v", keep, resource.Version, err)
		}
	}
}
