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
var storyObjects = []struct {
	kind
	name string
}{
	{clusterPolicy, "keep-claims"}, {policy, "keep-secrets"}, {module, "keep-labeled"}, {clusterModule, "keep-data"},
	{finalizer, "remove-bucket"}, {clusterFinalizer, "backup"}, {archive, "undelete"}, {clusterArchive, "undelete-workloads"}, {pause, "all"}, {clusterPause, "incident"},
	{budget, "nightly"}, {clusterBudget, "runaway"}, {retention, "last-jobs"}, {clusterRetention, "unused-settings"},
}

// applyStory applies testdata/story.yaml, and deletes it when the test ends.
func (a *api) applyStory(flags ...string) {
	a.Helper()
	a.kubectl(append([]string{"apply", "-f", story}, flags...)...)
	a.Cleanup(func() {
		args := []string{"delete", "--ignore-not-found", "-f", story}
		if _, err := a.cluster.Kubectl(context.WithoutCancel(a.Context()), args...); err != nil {
			a.Errorf("clean up: %v", err)
		}
	})
}

func (a *api) resourceVersions() map[string]string {
	a.Helper()
	found := map[string]string{}
	for _, o := range storyObjects {
		live, err := a.client(o.kind).Get(a.Context(), o.name, metav1.GetOptions{})
		if err != nil {
			a.Fatal(err)
		}
		found[o.name] = live.GetResourceVersion()
	}
	return found
}

// writeStatus writes a status as the operator does.
func (a *api) writeStatus(k kind, name string, status any) {
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

func TestApply_Twice_ChangesNothing(t *testing.T) {
	for claim, flags := range map[string][]string{
		"by the API server": {"--server-side"},
		"by kubectl":        nil,
	} {
		t.Run(claim, func(t *testing.T) {
			a := newAPI(t)
			a.applyStory(flags...)
			first := a.resourceVersions()
			a.applyStory(flags...)
			if diff := cmp.Diff(first, a.resourceVersions()); diff != "" {
				t.Errorf("resourceVersions after the first and the second time:\n%s", diff)
			}
		})
	}
}

func TestKubectl_ShowsValidationMessages(t *testing.T) {
	a := newAPI(t)
	out, err := a.cluster.Kubectl(t.Context(), "create", "-f", "testdata/bad.yaml")
	if err == nil {
		t.Fatalf("object was accepted: %s", out)
	}
	var found []string
	for _, line := range lines(err.Error()) {
		if text, ok := strings.CutPrefix(line, "* "); ok {
			found = append(found, text)
		}
	}
	slices.Sort(found)
	want := []string{
		`spec.fixed.collect.delay: Invalid value: "2d": write a duration greater than 0 and at most 720h, such as 90s or 1h30m`,
		`spec.fixed.collect.delay: Forbidden: delay is for Delete only: remove it, or set decision to Delete`,
		`spec.overridable: Forbidden: only a ClusterGCPolicy can be overridden: remove overridable, or create a ClusterGCPolicy`,
	}
	slices.Sort(want)
	if diff := cmp.Diff(want, found); diff != "" {
		t.Errorf("what kubectl lists (-want +got):\n%s\n%v", diff, err)
	}
}

func TestKubectlGet_ShowsPolicies(t *testing.T) {
	a := newAPI(t)
	a.applyStory()
	a.writeStatus(clusterPolicy, "keep-claims", v1alpha1.GCPolicyStatus{
		Conditions: []metav1.Condition{
			condition(v1alpha1.ConditionAccepted, metav1.ConditionTrue),
			condition(v1alpha1.ConditionModuleReady, metav1.ConditionTrue),
			condition(v1alpha1.ConditionEnforcing, metav1.ConditionFalse),
		},
		Engine: v1alpha1.EngineFixed, Hooks: []string{"collect", "propagate"},
		Reason: "NotServed", Decisions: map[string]int64{"Orphan": 3}, Held: 12, Resources: []string{"persistentvolumeclaims"},
	})
	a.writeStatus(module, "keep-labeled", v1alpha1.PolicyModuleStatus{
		Conditions: []metav1.Condition{
			condition(v1alpha1.ConditionFetched, metav1.ConditionTrue),
			condition(v1alpha1.ConditionCompiled, metav1.ConditionUnknown),
		},
		Digest: "abc", Engine: v1alpha1.EngineRego, ABI: "abi.gleaner.dev/v1", Hooks: []string{"collect"},
	})

	for command, want := range map[string][]string{
		"cgcpol": {
			"NAME|MODE|MODULE|COLLECT|PROPAGATE|PROTECT|ACCEPTED|READY|ENFORCING|REASON|AGE",
			"keep-claims|Monitor||Orphan|Foreground||True|True|False|NotServed|AGE",
		},
		"gcpol": {
			"NAME|MODE|MODULE|COLLECT|PROPAGATE|ACCEPTED|READY|ENFORCING|REASON|AGE",
			"keep-secrets|Enforce|keep-labeled|||||||AGE",
		},
		"cgcpol -o wide": {
			"NAME|MODE|MODULE|COLLECT|PROPAGATE|PROTECT|ACCEPTED|READY|ENFORCING|HELD|PRIORITY|REASON|AGE",
			"keep-claims|Monitor||Orphan|Foreground||True|True|False|12|7|NotServed|AGE",
		},
		"pmod": {
			"NAME|ENGINE|HOOKS|FETCHED|COMPILED|DIGEST|REASON|AGE",
			`keep-labeled|Rego|["collect"]|True|Unknown|abc||AGE`,
		},
		"cpmod": {
			"NAME|ENGINE|HOOKS|FETCHED|COMPILED|DIGEST|REASON|AGE",
			"keep-data|||||||AGE",
		},
	} {
		a.expectColumns(command, want)
	}

	if out := a.kubectl("get", "gleaner", "-o", "name"); strings.Count(out, ".gleaner.dev/") != len(storyObjects) {
		t.Errorf("kubectl get gleaner does not list all kinds:\n%s", out)
	}
}

func TestKubectlGet_ShowsFinalizers(t *testing.T) {
	a := newAPI(t)
	a.applyStory()
	a.writeStatus(finalizer, "remove-bucket", v1alpha1.FinalizerStatus{
		Conditions: []metav1.Condition{
			condition(v1alpha1.ConditionAccepted, metav1.ConditionTrue),
			condition(v1alpha1.ConditionModuleReady, metav1.ConditionTrue),
			condition(v1alpha1.ConditionEnforcing, metav1.ConditionFalse),
		},
		Finalizer: "default.gleaner.dev/remove-bucket", Pending: 12, Released: 3, Stalled: 1, Reason: "Failed",
		StalledObjects: []v1alpha1.StalledObject{{APIVersion: "v1", Kind: "ConfigMap", Namespace: "default", Name: "a", UID: "1", Reason: "Failed", SinceTime: metav1.Now()}},
	})
	for command, want := range map[string][]string{
		"fin": {
			"NAME|FINALIZER|MODE|MODULE|READY|ENFORCING|PENDING|STALLED|REASON|AGE",
			"remove-bucket|default.gleaner.dev/remove-bucket|Monitor|keep-labeled|True|False|12|1|Failed|AGE",
		},
		"fin -o wide": {
			"NAME|FINALIZER|MODE|MODULE|READY|ENFORCING|PENDING|STALLED|RELEASED|ACCEPTED|REASON|AGE",
			"remove-bucket|default.gleaner.dev/remove-bucket|Monitor|keep-labeled|True|False|12|1|3|True|Failed|AGE",
		},
		"cfin": {
			"NAME|FINALIZER|MODE|MODULE|READY|ENFORCING|PENDING|STALLED|REASON|AGE",
			"backup||Enforce|keep-data||||||AGE",
		},
	} {
		a.expectColumns(command, want)
	}
}

func TestKubectlGet_ShowsArchivePolicies(t *testing.T) {
	a := newAPI(t)
	a.applyStory()
	a.writeStatus(archive, "undelete", v1alpha1.ArchivePolicyStatus{
		Conditions: []metav1.Condition{
			condition(v1alpha1.ConditionAccepted, metav1.ConditionTrue),
			condition(v1alpha1.ConditionArchiving, metav1.ConditionFalse),
		},
		Finalizer: "default.archive.gleaner.dev/undelete", Archived: 1234, Bytes: 56789, Held: 12, Missed: 1, Reason: "StoreFailing",
		LastFailure:    &v1alpha1.Failure{Time: metav1.Now(), Message: "no space left on device"},
		StalledObjects: []v1alpha1.StalledObject{{APIVersion: "v1", Kind: "ConfigMap", Namespace: "default", Name: "a", UID: "1", Reason: "Fault", SinceTime: metav1.Now()}},
	})
	for command, want := range map[string][]string{
		"archpol": {
			"NAME|TTL|ARCHIVED|HELD|ARCHIVING|REASON|AGE",
			"undelete|24h|1234|12|False|StoreFailing|AGE",
		},
		"archpol -o wide": {
			"NAME|TTL|ARCHIVED|HELD|ARCHIVING|ACCEPTED|ON-FAILURE|DELETED-BY|FINALIZER|REASON|AGE",
			"undelete|24h|1234|12|False|True|Hold|Anyone|default.archive.gleaner.dev/undelete|StoreFailing|AGE",
		},
		"carchpol": {
			"NAME|TTL|ARCHIVED|HELD|ARCHIVING|REASON|AGE",
			"undelete-workloads|168h|||||AGE",
		},
	} {
		a.expectColumns(command, want)
	}
}

func TestKubectlGet_ShowsPauses(t *testing.T) {
	a := newAPI(t)
	a.applyStory()
	a.writeStatus(pause, "all", v1alpha1.PauseStatus{Conditions: []metav1.Condition{condition(v1alpha1.ConditionInForce, metav1.ConditionTrue)}})
	for command, want := range map[string][]string{
		"pauses":        {"NAME|POLICY|UNTIL|IN-FORCE|REASON|AGE", "all||2030-01-02T03:04:05Z|True||AGE"},
		"clusterpauses": {"NAME|POLICY|UNTIL|IN-FORCE|REASON|AGE", "incident|keep-data|||owners vanish|AGE"},
	} {
		a.expectColumns(command, want)
	}
}

func TestKubectlGet_ShowsDeletionBudgets(t *testing.T) {
	a := newAPI(t)
	a.applyStory()
	a.writeStatus(budget, "nightly", v1alpha1.DeletionBudgetStatus{
		Used: 5, Allowed: 5, Waiting: 3, Exhaustions: 1, Conditions: []metav1.Condition{condition(v1alpha1.ConditionExhausted, metav1.ConditionTrue)},
	})
	for command, want := range map[string][]string{
		"delbudget":  {"NAME|MAX|WINDOW|ON-EXHAUSTED|USED|WAITING|EXHAUSTED|AGE", "nightly|10%|24h|Trip|5|3|True|AGE"},
		"cdelbudget": {"NAME|MAX|WINDOW|ON-EXHAUSTED|USED|WAITING|EXHAUSTED|AGE", "runaway|500|1m|Wait||||AGE"},
	} {
		a.expectColumns(command, want)
	}
}

// expectColumns compares the output columns of kubectl get.
func (a *api) expectColumns(command string, want []string) {
	a.Helper()
	a.Run(command, func(t *testing.T) {
		out := a.kubectl(append([]string{"get"}, strings.Fields(command)...)...)
		if diff := cmp.Diff(want, cells(out)); diff != "" {
			t.Errorf("kubectl get %s (-want +got):\n%s\n%s", command, diff, out)
		}
	})
}

var age = regexp.MustCompile(`^([0-9]+[dhms])+$|^<unknown>$`)

// cells splits a table into cells, whose widths are those of its headers.
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

// If status could be written with the spec, authors of policies could claim that they
// are in force.
func TestStatus_IsASubresource(t *testing.T) {
	a := newAPI(t)
	a.applyStory()
	for _, o := range storyObjects {
		t.Run(o.kind.name, func(t *testing.T) {
			a.writeStatus(o.kind, o.name, map[string]any{"observedGeneration": 1})
			body := []byte(`{"status": {"observedGeneration": 7}}`)
			live, err := a.client(o.kind).Patch(t.Context(), o.name, types.MergePatchType, body, metav1.PatchOptions{})
			if err != nil {
				t.Fatal(err)
			}
			want := map[string]any{"observedGeneration": int64(1)}
			if diff := cmp.Diff(want, live.Object["status"]); diff != "" {
				t.Errorf("status (-want +got):\n%s", diff)
			}
			if live.GetGeneration() != 1 {
				t.Errorf("generation is %d after a status update, want 1", live.GetGeneration())
			}
		})
	}
}

func TestKubectlExplain_ShowsTheComments(t *testing.T) {
	a := newAPI(t)
	for field, want := range map[string]string{
		"clustergcpolicy":                        "ClusterGCPolicy defines what happens to objects in any namespace",
		"clustergcpolicy.spec.onFault":           "Hold keeps the object and retries",
		"gcpolicy.spec.fixed.collect.delay":      "Minimum time that an object must have been without an owner before collect deletes it",
		"gcpolicy.spec.settings":                 "part of every request to the module",
		"policymodule.spec.rego.inline":          "The Rego source text, of package gleaner.",
		"clusterpolicymodule.spec.limits.memory": "from 64Ki to 512Mi",
		"clusterpolicymodule.status.hooks":       "Hooks that the module implements.",
		"finalizer":                              "Finalizer declares a finalizer on objects in its namespace, and the module that runs before they are deleted.",
		"finalizer.spec.grants.http.url":         "With * at the end, every URL with this prefix is allowed",
		"clusterfinalizer.spec.finalizer":        "the entry of a Finalizer is always <namespace>.gleaner.dev/<name>",
		"clusterfinalizer.spec.deadline":         "from its deletionTimestamp. At most 8760h.",
		"clusterfinalizer.status.stalledObjects": "The objects that have been stalled the longest, at most 20.",
		"archivepolicy":                          "ArchivePolicy archives objects in its namespace before they are deleted, so that they can be restored.",
		"clusterarchivepolicy.spec.onFailure":    "Hold keeps the object until it is archived, and reports why",
		"clusterpause.spec":                      "If empty, everything is paused until the ClusterPause is deleted.",
		"clusterarchivepolicy.spec.recipients":   "If empty, archived objects are not encrypted, and Secrets are not archived.",
	} {
		t.Run(field, func(t *testing.T) {
			devtest.Eventually(t, timeout, func() error { // the API server publishes its schema a little later
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

func TestShortNames_AreUnique(t *testing.T) {
	a := newAPI(t)
	_, lists, err := discovery.NewDiscoveryClientForConfigOrDie(a.cluster.RESTConfig()).ServerGroupsAndResources()
	if err != nil {
		t.Fatal(err)
	}
	owners := map[string][]string{}
	for _, list := range lists {
		for _, resource := range list.APIResources {
			if strings.Contains(resource.Name, "/") {
				continue // subresources have no names of their own
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
