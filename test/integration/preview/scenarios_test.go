package preview

import (
	"flag"
	"fmt"
	"math/rand"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gleaner-dev/gleaner/operator/preview"
)

const (
	background = metav1.DeletePropagationBackground
	foreground = metav1.DeletePropagationForeground
	orphan     = metav1.DeletePropagationOrphan
	none       = metav1.DeletionPropagation("None") // a request without a propagation policy
)

var seeds = flag.Int64("seeds", 12, "number of random sets of objects to preview and delete")

const policy = `
kind: GCPolicy
metadata: {name: p}
spec:
  resources: [{apiGroups: [""], resources: [secrets]}]
  mode: Enforce
  fixed: `

// byLabelModule keeps ConfigMaps that have a label.
const byLabelModule = `
kind: ClusterPolicyModule
metadata: {name: NS}
spec:
  rego:
    inline: |
      package gleaner

      collect := {"decision": "Orphan"} if { input.object.metadata.labels.keep == "true" } else := {"decision": "Abstain"}
---
kind: ClusterGCPolicy
metadata: {name: NS}
spec:
  resources: [{apiGroups: [""], resources: [configmaps]}]
  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: NS}}
  mode: Enforce
  module: {name: NS}
`

// The preview of each object, compared with what happens.
func TestPreview_MatchesWhatHappens(t *testing.T) {
	for claim, s := range map[string]struct {
		policies, objects string
		targets           string // what is deleted; default top
		cascade           metav1.DeletionPropagation
		says              map[string]string
	}{
		"background: dependents are deleted, except those with another owner": {
			objects: `
				ConfigMap top
				ConfigMap other
				ConfigMap a owners=top
				Secret b owners=a
				Secret c owners=top,other
				Secret d owners=other`,
			says: map[string]string{"top": "Goes", "a": "Goes", "b": "Goes", "c": "Stays"}},
		"foreground: blocking dependents are waited for": {
			objects: `
				ConfigMap top
				ConfigMap a owners=top! finalizers=test.example.com/x
				Secret b owners=top`,
			cascade: foreground,
			says:    map[string]string{"top": "Waits then Goes", "a": "Waits then Goes", "b": "Goes"}},
		"orphan: dependents stay, and their dependents": {
			objects: `
				ConfigMap top
				ConfigMap a owners=top!
				Secret b owners=a`,
			cascade: orphan,
			says:    map[string]string{"top": "Goes", "a": "Stays", "b": "Stays"}},
		"a finalizer keeps dependents": {
			objects: `
				ConfigMap top finalizers=test.example.com/x
				ConfigMap a owners=top
				Secret b owners=a`,
			says: map[string]string{"top": "Waits then Goes", "a": "Waits then Goes", "b": "Waits then Goes"}},
		"a finalizer added before the deletion decides about dependents": {
			objects: `
				ConfigMap top
				ConfigMap a owners=top finalizers=orphan
				Secret b owners=a`,
			says: map[string]string{"top": "Goes", "a": "Goes", "b": "Stays"}},
		"a dependent that one owner orphans and another deletes may go or stay": {
			objects: `
				ConfigMap top
				ConfigMap leaves owners=top finalizers=orphan
				ConfigMap takes owners=top
				Secret both owners=leaves,takes`,
			says: map[string]string{"top": "Goes", "leaves": "Goes", "takes": "Goes", "both": "Unknown"}},
		"two objects that own and block each other are deleted": {
			objects: `
				ConfigMap top
				ConfigMap a owners=top!
				ConfigMap b owners=a!,top!`,
			cascade: foreground,
			says:    map[string]string{"top": "Goes", "a": "Goes", "b": "Goes"}},
		"claims are deleted once no pod uses them": {
			objects: `
				ConfigMap top
				PersistentVolumeClaim data owners=top`,
			says: map[string]string{"top": "Goes", "data": "Goes"}},
		"collect: Orphan keeps": {
			policies: policy + `{collect: {decision: Orphan}}`,
			objects: `
				ConfigMap top
				Secret kept owners=top
				ConfigMap below owners=kept
				ConfigMap goes owners=top`,
			says: map[string]string{"top": "Goes", "kept": "Stays", "below": "Stays", "goes": "Goes"}},
		"collect: a delay is waited for": {
			policies: policy + `{collect: {decision: Delete, delay: 24h}}`,
			objects: `
				ConfigMap top
				Secret later owners=top
				ConfigMap below owners=later`,
			says: map[string]string{"top": "Goes", "later": "Waits then Goes after 24h", "below": "Waits then Goes after 24h"}},
		"collect: Wait waits, for an unknown time": {
			policies: policy + `{collect: {decision: Wait, after: 1h}}`,
			objects: `
				ConfigMap top
				Secret waits owners=top`,
			says: map[string]string{"top": "Goes", "waits": "Waits"}},
		"dependents of a waiting object wait as well": {
			policies: policy + `{collect: {decision: Wait, after: 1h}}`,
			objects: `
				ConfigMap top
				ConfigMap other
				Secret waits owners=top
				ConfigMap below owners=waits
				ConfigMap both owners=waits,other`,
			says: map[string]string{"top": "Goes", "waits": "Waits", "below": "Waits", "both": "Stays"}},
		"in Monitor, a policy changes nothing": {
			policies: strings.Replace(policy, "Enforce", "Monitor", 1) + `{collect: {decision: Orphan}}`,
			objects: `
				ConfigMap top
				Secret goes owners=top`,
			says: map[string]string{"top": "Goes", "goes": "Goes"}},
		"collect: Orphan does not stop a foreground deletion in progress": {
			policies: policy + `{collect: {decision: Orphan}}`,
			objects: `
				ConfigMap top
				Secret kept owners=top!`,
			cascade: foreground,
			says:    map[string]string{"top": "Goes", "kept": "Stays"}},
		"propagate: Orphan": {
			policies: policy + `{propagate: {decision: Orphan}}`,
			objects: `
				Secret top held
				ConfigMap a owners=top
				ConfigMap b owners=a`,
			says: map[string]string{"top": "Goes", "a": "Stays", "b": "Stays"}},
		"propagate: Foreground": {
			policies: policy + `{propagate: {decision: Foreground}}`,
			objects: `
				Secret top held
				ConfigMap a owners=top! finalizers=test.example.com/x
				ConfigMap b owners=top`,
			says: map[string]string{"top": "Waits then Goes", "a": "Waits then Goes", "b": "Goes"}},
		"propagate: Foreground is not used if a client requests Orphan": {
			policies: policy + `{propagate: {decision: Foreground}}`,
			objects: `
				Secret top held
				ConfigMap a owners=top`,
			cascade: orphan,
			says:    map[string]string{"top": "Goes", "a": "Stays"}},
		"propagate: Foreground in the middle of a tree": {
			policies: policy + `{propagate: {decision: Foreground}}`,
			objects: `
				ConfigMap top
				Secret middle owners=top held
				ConfigMap a owners=middle! finalizers=test.example.com/x`,
			says: map[string]string{"top": "Goes", "middle": "Waits then Goes", "a": "Waits then Goes"}},
		"propagate: Wait": {
			policies: policy + `{propagate: {decision: Wait}}`,
			objects: `
				Secret top held
				ConfigMap a owners=top`,
			says: map[string]string{"top": "Waits", "a": "Waits"}},
		"propagate: an exception": {
			policies: policy + `{propagate: {decision: Background, dependents: [{kind: ConfigMap, decision: Orphan}]}}`,
			objects: `
				Secret top held
				ConfigMap stays owners=top
				PersistentVolumeClaim goes owners=top`,
			says: map[string]string{"top": "Goes", "stays": "Stays", "goes": "Goes"}},
		"propagate: in order": {
			policies: policy + `{propagate: {decision: Foreground, order: [[{kind: ConfigMap}]]}}`,
			objects: `
				Secret top held
				ConfigMap first owners=top finalizers=test.example.com/x
				PersistentVolumeClaim last owners=top`,
			says: map[string]string{"top": "Waits then Goes", "first": "Waits then Goes", "last": "Waits then Goes"}},
		"owners that are deleted together": {
			targets: "top,other",
			objects: `
				ConfigMap top
				ConfigMap other
				Secret shared owners=top,other`,
			says: map[string]string{"top": "Goes", "other": "Goes", "shared": "Goes"}},
		"an owner and its dependent are deleted together": {
			targets: "top,below",
			objects: `
				ConfigMap top
				Secret below owners=top
				ConfigMap last owners=below`,
			cascade: orphan,
			says:    map[string]string{"top": "Goes", "below": "Goes", "last": "Stays"}},
		"no propagation policy": {
			objects: `
				ConfigMap top
				Secret below owners=top`,
			cascade: none,
			says:    map[string]string{"top": "Goes", "below": "Goes"}},
		"no propagation policy, and a type that is older than garbage collection": {
			objects: `
				ReplicationController top
				Secret below owners=top`,
			cascade: none,
			says:    map[string]string{"top": "Goes", "below": "Stays"}},
		"a module that decides by labels": {
			policies: byLabelModule,
			objects: `
				Secret top
				ConfigMap kept owners=top labels=keep:true
				ConfigMap goes owners=top`,
			says: map[string]string{"top": "Goes", "kept": "Stays", "goes": "Goes"}},
		"a policy with a fault keeps the object": {
			policies: `
kind: ClusterPolicyModule
metadata: {name: NS}
spec:
  rego:
    inline: |
      package gleaner

      collect := {"decision": "Nonsense"}
---
kind: ClusterGCPolicy
metadata: {name: NS}
spec:
  resources: [{apiGroups: [""], resources: [secrets]}]
  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: NS}}
  mode: Enforce
  module: {name: NS}
`,
			objects: `
				ConfigMap top
				Secret waits owners=top`,
			says: map[string]string{"top": "Goes", "waits": "Waits"}},
	} {
		t.Run(claim, func(t *testing.T) {
			w := newEnv(t)
			w.applyPolicies(s.policies)
			w.create(s.objects)
			if s.cascade == "" {
				s.cascade = background
			}
			if s.targets == "" {
				s.targets = "top"
			}
			predicted := w.outcomes(w.preview(s.targets, s.cascade))
			if diff := cmp.Diff(s.says, predicted); diff != "" {
				t.Fatalf("preview (-want +got):\n%s", diff)
			}
			w.delete(s.targets, s.cascade)
			w.expectOutcomes(predicted)
			w.finishWaiting(predicted)
		})
	}
}

// finishWaiting removes the test's finalizers, and checks that objects that waited only for these
// become as predicted.
func (w *env) finishWaiting(predicted map[string]string) {
	w.Helper()
	freed, after := false, map[string]string{}
	for name, text := range predicted {
		after[name] = text
		live := w.get(name)
		if live == nil || live.GetDeletionTimestamp() == nil {
			continue
		}
		for _, f := range live.GetFinalizers() {
			freed = freed || f == "test.example.com/x"
		}
	}
	if !freed {
		return
	}
	for name, text := range predicted {
		if live := w.get(name); live != nil {
			w.removeFinalizers(name)
		}
		if outcome, then, waits := strings.Cut(text, " then "); waits && outcome == preview.Waits.String() && !strings.Contains(then, " after ") {
			after[name] = then
		}
	}
	w.expectOutcomes(after)
}

// Previews of random objects are compared with what happens: the seed is in the test's name.
func TestPreview_OfRandomObjects_MatchesWhatHappens(t *testing.T) {
	for seed := range *seeds {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewSource(seed))
			w := newEnv(t)
			if r.Intn(2) == 0 {
				w.applyPolicies(policy + []string{"{collect: {decision: Orphan}}", "{collect: {decision: Delete, delay: 24h}}", "{collect: {decision: Delete, propagation: Orphan}}"}[r.Intn(3)])
			}
			text := randomObjects(r)
			w.create(text)
			cascade := []metav1.DeletionPropagation{background, background, foreground, orphan}[r.Intn(4)]
			predicted := w.outcomes(w.preview("o0", cascade))
			t.Logf("%s; o0 is deleted with %s: %v", text, cascade, predicted)
			w.delete("o0", cascade)
			w.expectOutcomes(predicted)
			w.finishWaiting(predicted)
		})
	}
}

// randomObjects returns objects of which each is owned by some before it.
func randomObjects(r *rand.Rand) string {
	var b strings.Builder
	for i := range 12 {
		fmt.Fprintf(&b, "%s o%d", []string{"ConfigMap", "Secret"}[r.Intn(2)], i)
		var owners []string
		for j := range i {
			if r.Intn(i) < 2 && len(owners) < 3 {
				owners = append(owners, fmt.Sprintf("o%d%s", j, []string{"", "!"}[r.Intn(2)]))
			}
		}
		if len(owners) != 0 {
			fmt.Fprintf(&b, " owners=%s", strings.Join(owners, ","))
		}
		switch r.Intn(8) {
		case 0:
			b.WriteString(" finalizers=test.example.com/x")
		case 1:
			b.WriteString(" finalizers=" + []string{"orphan", "foregroundDeletion"}[r.Intn(2)])
		}
		b.WriteString("\n")
	}
	return b.String()
}

func TestPreview_OfANamespace(t *testing.T) {
	w := newEnv(t)
	w.applyPolicies(policy + `{collect: {decision: Orphan}}`)
	namespace, err := w.client("Namespace").Get(t.Context(), w.ns, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w.created[w.ns] = namespace
	w.create(`
		ConfigMap a
		Secret b owners=a
		PersistentVolumeClaim data
		ConfigMap held finalizers=test.example.com/x
		ConfigMap below owners=held`)
	predicted := w.outcomes(w.preview(w.ns, background))
	want := map[string]string{
		w.ns: "Waits then Goes", "a": "Goes", "b": "Goes", "data": "Goes", "held": "Waits then Goes", "below": "Goes", "p": "Goes",
	}
	if diff := cmp.Diff(want, predicted); diff != "" {
		t.Fatalf("preview (-want +got):\n%s", diff)
	}
	w.delete(w.ns, background)
	w.expectOutcomes(predicted)
	w.finishWaiting(predicted)
}
