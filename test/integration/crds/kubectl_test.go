package crds

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"

	"github.com/gleaner-dev/gleaner/crds"
	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/devcluster/devtest"
)

const story = "testdata/story.yaml"

// The resources of testdata/story.yaml.
var told = []struct {
	kind
	name string
}{
	{clusterPolicy, "keep-claims"}, {policy, "keep-secrets"}, {module, "keep-labelled"}, {clusterModule, "keep-data"},
	{finalizer, "remove-bucket"}, {clusterFinalizer, "backup"},
}

// tell applies testdata/story.yaml, and takes it away when the test ends.
func (a *api) tell(flags ...string) {
	a.Helper()
	a.kubectl(append([]string{"apply", "-f", story}, flags...)...)
	a.Cleanup(func() {
		args := []string{"delete", "--ignore-not-found", "-f", story}
		if _, err := a.cluster.Kubectl(context.WithoutCancel(a.Context()), args...); err != nil {
			a.Errorf("clean up: %v", err)
		}
	})
}

func (a *api) versions() map[string]string {
	a.Helper()
	found := map[string]string{}
	for _, o := range told {
		live, err := a.client(o.kind).Get(a.Context(), o.name, metav1.GetOptions{})
		if err != nil {
			a.Fatal(err)
		}
		found[o.name] = live.GetResourceVersion()
	}
	return found
}

// status writes a status as the operator will.
func (a *api) status(k kind, name string, status any) {
	a.Helper()
	body, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		a.Fatal(err)
	}
	if _, err := a.client(k).Patch(a.Context(), name, types.MergePatchType, body, metav1.PatchOptions{}, "status"); err != nil {
		a.Fatal(err)
	}
}

func condition(name string, is metav1.ConditionStatus) metav1.Condition {
	return metav1.Condition{Type: name, Status: is, Reason: "Tested", Message: "m", LastTransitionTime: metav1.Now()}
}

func TestApplyingTwiceChangesNothing(t *testing.T) {
	for claim, flags := range map[string][]string{
		"by the API server": {"--server-side"},
		"by kubectl":        nil,
	} {
		t.Run(claim, func(t *testing.T) {
			a := newAPI(t)
			a.tell(flags...)
			first := a.versions()
			a.tell(flags...)
			if diff := cmp.Diff(first, a.versions()); diff != "" {
				t.Errorf("resourceVersions after the first and the second time:\n%s", diff)
			}
		})
	}
}

func TestKubectlSaysWhatToWrite(t *testing.T) {
	a := newAPI(t)
	out, err := a.cluster.Kubectl(t.Context(), "create", "-f", "testdata/bad.yaml")
	if err == nil {
		t.Fatalf("it was accepted: %s", out)
	}
	var found []string
	for _, line := range lines(err.Error()) {
		if text, ok := strings.CutPrefix(line, "* "); ok {
			found = append(found, text)
		}
	}
	slices.Sort(found)
	want := []string{
		`spec.fixed.collect.delay: Invalid value: "2d": write a duration above 0 and of at most 720h, such as 90s or 1h30m`,
		`spec.fixed.collect.delay: Forbidden: delay means something with Delete alone: leave it out, or decide Delete`,
		`spec.overridable: Forbidden: only cluster policies can be overridden: leave overridable out, or write a ClusterGCPolicy`,
	}
	slices.Sort(want)
	if diff := cmp.Diff(want, found); diff != "" {
		t.Errorf("what kubectl lists (-want +got):\n%s\n%v", diff, err)
	}
}

func TestGetShowsWhatAPolicyDoesAndWhetherItIsInForce(t *testing.T) {
	a := newAPI(t)
	a.tell()
	a.status(clusterPolicy, "keep-claims", v1alpha1.GCPolicyStatus{
		Conditions: []metav1.Condition{
			condition(v1alpha1.ConditionAccepted, metav1.ConditionTrue),
			condition(v1alpha1.ConditionModuleReady, metav1.ConditionTrue),
			condition(v1alpha1.ConditionEnforcing, metav1.ConditionFalse),
		},
		Engine: v1alpha1.EngineFixed, Hooks: []string{"collect", "propagate"},
		Reason: "NotServed", Decisions: map[string]int64{"Orphan": 3}, Held: 12, Resources: []string{"persistentvolumeclaims"},
	})
	a.status(module, "keep-labelled", v1alpha1.PolicyModuleStatus{
		Conditions: []metav1.Condition{
			condition(v1alpha1.ConditionFetched, metav1.ConditionTrue),
			condition(v1alpha1.ConditionCompiled, metav1.ConditionUnknown),
		},
		Digest: "abc", Engine: v1alpha1.EngineRego, ABI: "abi.gleaner.dev/v1", Hooks: []string{"collect"},
	})

	for command, want := range map[string][]string{
		"cgcp": {
			"NAME|MODE|MODULE|COLLECT|PROPAGATE|ACCEPTED|READY|ENFORCING|REASON|AGE",
			"keep-claims|Monitor||Orphan|Foreground|True|True|False|NotServed|AGE",
		},
		"gcp": {
			"NAME|MODE|MODULE|COLLECT|PROPAGATE|ACCEPTED|READY|ENFORCING|REASON|AGE",
			"keep-secrets|Enforce|keep-labelled|||||||AGE",
		},
		"cgcp -o wide": {
			"NAME|MODE|MODULE|COLLECT|PROPAGATE|ACCEPTED|READY|ENFORCING|HELD|PRIORITY|REASON|AGE",
			"keep-claims|Monitor||Orphan|Foreground|True|True|False|12|7|NotServed|AGE",
		},
		"pmod": {
			"NAME|ENGINE|HOOKS|FETCHED|COMPILED|DIGEST|REASON|AGE",
			`keep-labelled|Rego|["collect"]|True|Unknown|abc||AGE`,
		},
		"cpmod": {
			"NAME|ENGINE|HOOKS|FETCHED|COMPILED|DIGEST|REASON|AGE",
			"keep-data|||||||AGE",
		},
	} {
		a.shows(command, want)
	}

	if out := a.kubectl("get", "gleaner", "-o", "name"); strings.Count(out, ".gleaner.dev/") != len(told) {
		t.Errorf("kubectl get gleaner has not all kinds:\n%s", out)
	}
}

func TestGetShowsWhatAFinalizerWaitsFor(t *testing.T) {
	a := newAPI(t)
	a.tell()
	a.status(finalizer, "remove-bucket", v1alpha1.FinalizerStatus{
		Conditions: []metav1.Condition{
			condition(v1alpha1.ConditionAccepted, metav1.ConditionTrue),
			condition(v1alpha1.ConditionModuleReady, metav1.ConditionTrue),
			condition(v1alpha1.ConditionEnforcing, metav1.ConditionFalse),
		},
		Finalizer: "default.gleaner.dev/remove-bucket", Pending: 12, Released: 3, StuckCount: 1, Reason: "Failed",
		Stuck: []v1alpha1.StuckObject{{APIVersion: "v1", Kind: "ConfigMap", Namespace: "default", Name: "a", UID: "1", Reason: "Failed", Since: metav1.Now()}},
	})
	for command, want := range map[string][]string{
		"fin": {
			"NAME|FINALIZER|MODE|MODULE|READY|ENFORCING|PENDING|STUCK|REASON|AGE",
			"remove-bucket|default.gleaner.dev/remove-bucket|Monitor|keep-labelled|True|False|12|1|Failed|AGE",
		},
		"fin -o wide": {
			"NAME|FINALIZER|MODE|MODULE|READY|ENFORCING|PENDING|STUCK|RELEASED|ACCEPTED|REASON|AGE",
			"remove-bucket|default.gleaner.dev/remove-bucket|Monitor|keep-labelled|True|False|12|1|3|True|Failed|AGE",
		},
		"cfin": {
			"NAME|FINALIZER|MODE|MODULE|READY|ENFORCING|PENDING|STUCK|REASON|AGE",
			"backup||Enforce|keep-data||||||AGE",
		},
	} {
		a.shows(command, want)
	}
}

// shows compares the columns of kubectl get.
func (a *api) shows(command string, want []string) {
	a.Helper()
	a.Run(command, func(t *testing.T) {
		out := a.kubectl(append([]string{"get"}, strings.Fields(command)...)...)
		if diff := cmp.Diff(want, cells(out)); diff != "" {
			t.Errorf("kubectl get %s (-want +got):\n%s\n%s", command, diff, out)
		}
	})
}

var age = regexp.MustCompile(`^([0-9]+[dhms])+$|^<unknown>$`)

// cells are the columns of a table, whose widths are those of its heads.
func cells(table string) []string {
	rows := lines(table)
	var starts []int
	for i, r := range rows[0] {
		if r != ' ' && (i == 0 || rows[0][i-1] == ' ') {
			starts = append(starts, i)
		}
	}
	var out []string
	for _, row := range rows {
		var columns []string
		for i, start := range starts {
			end := len(row)
			if i+1 < len(starts) {
				end = min(end, starts[i+1])
			}
			cell := strings.TrimSpace(row[min(start, end):end])
			if age.MatchString(cell) && i == len(starts)-1 {
				cell = "AGE"
			}
			columns = append(columns, cell)
		}
		out = append(out, strings.Join(columns, "|"))
	}
	return out
}

// A status that could be written with the spec would let whoever writes policies
// say that they are in force.
func TestStatusIsWrittenOnItsOwnAndDoesNotChangeTheGeneration(t *testing.T) {
	a := newAPI(t)
	a.tell()
	for _, o := range told {
		t.Run(o.kind.name, func(t *testing.T) {
			a.status(o.kind, o.name, map[string]any{"observedGeneration": 1, "digest": "abc"})
			body := []byte(`{"status": {"digest": "forged"}}`)
			live, err := a.client(o.kind).Patch(t.Context(), o.name, types.MergePatchType, body, metav1.PatchOptions{})
			if err != nil {
				t.Fatal(err)
			}
			want := map[string]any{"observedGeneration": int64(1), "digest": "abc"}
			if diff := cmp.Diff(want, live.Object["status"]); diff != "" {
				t.Errorf("status (-want +got):\n%s", diff)
			}
			if live.GetGeneration() != 1 {
				t.Errorf("generation %d, though the spec is the first", live.GetGeneration())
			}
		})
	}
}

func TestExplainShowsTheCommentsOfTheGoTypes(t *testing.T) {
	a := newAPI(t)
	for field, want := range map[string]string{
		"clustergcpolicy":                        "ClusterGCPolicy says what becomes of objects of any namespace",
		"clustergcpolicy.spec.onFault":           "Hold keeps the object and tries again",
		"gcpolicy.spec.fixed.collect.delay":      "How long an object must have been without an owner before collect deletes it",
		"gcpolicy.spec.settings":                 "handed to the module with every request",
		"policymodule.spec.rego.inline":          "The source, of package gleaner.",
		"clusterpolicymodule.spec.limits.memory": "from 64Ki to 512Mi",
		"clusterpolicymodule.status.hooks":       "The hooks that it answers.",
		"finalizer":                              "Finalizer has a module do what is to be done before objects of its namespace go.",
		"finalizer.spec.grants.http.url":         "with * at its end every URL that begins so",
		"clusterfinalizer.spec.finalizer":        "that of a Finalizer is always its namespace, then .gleaner.dev/, then its name",
		"clusterfinalizer.spec.deadline":         "from its deletionTimestamp; without it, for ever. At most 8760h.",
		"clusterfinalizer.status.stuck":          "Those of them that have been so for the longest time, at most 20.",
	} {
		t.Run(field, func(t *testing.T) {
			devtest.Eventually(t, patience, func() error { // the API server publishes its schema a little later
				out, err := a.cluster.Kubectl(t.Context(), "explain", field)
				if err != nil {
					return err
				}
				if !strings.Contains(strings.Join(strings.Fields(out), " "), want) {
					return fmt.Errorf("kubectl explain has no %q:\n%s", want, out)
				}
				return nil
			})
		})
	}
}

func TestNoShortNameMeansSomethingElseAlready(t *testing.T) {
	a := newAPI(t)
	_, lists, err := discovery.NewDiscoveryClientForConfigOrDie(a.cluster.RESTConfig()).ServerGroupsAndResources()
	if err != nil {
		t.Fatal(err)
	}
	owners := map[string][]string{}
	for _, list := range lists {
		for _, resource := range list.APIResources {
			if strings.Contains(resource.Name, "/") {
				continue // a subresource is not asked for by its name
			}
			for _, name := range append(resource.ShortNames, resource.Name, resource.SingularName) {
				if owner := strings.Split(list.GroupVersion, "/")[0] + "/" + resource.Name; !slices.Contains(owners[name], owner) {
					owners[name] = append(owners[name], owner)
				}
			}
		}
	}
	definitions, err := crds.Definitions()
	if err != nil {
		t.Fatal(err)
	}
	for _, definition := range definitions {
		names := definition.Spec.Names
		for _, name := range append(names.ShortNames, names.Plural, names.Singular) {
			want := []string{"gleaner.dev/" + names.Plural}
			if diff := cmp.Diff(want, owners[name]); diff != "" {
				t.Errorf("%s (-want +got):\n%s", name, diff)
			}
		}
	}
}
