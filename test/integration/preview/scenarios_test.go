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
)

var seeds = flag.Int64("seeds", 12, "how many random sets of objects are previewed and deleted")

const policy = `
kind: GCPolicy
metadata: {name: p}
spec:
  resources: [{apiGroups: [""], resources: [secrets]}]
  mode: Enforce
  fixed: `

// byLabel keeps the ConfigMaps that have a label.
const byLabel = `
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

// What a preview says of each object, and what happens then.
func TestWhatAPreviewSaysHappens(t *testing.T) {
	for claim, s := range map[string]struct {
		policies, objects string
		cascade           metav1.DeletionPropagation
		says              map[string]string
	}{
		"in the background, what is owned goes, and what has another owner stays": {
			objects: `
				ConfigMap top
				ConfigMap other
				ConfigMap a owners=top
				Secret b owners=a
				Secret c owners=top,other
				Secret d owners=other`,
			says: map[string]string{"top": "Goes", "a": "Goes", "b": "Goes", "c": "Stays"}},
		"in the foreground, what blocks is waited for": {
			objects: `
				ConfigMap top
				ConfigMap a owners=top! finalizers=test.example.com/x
				Secret b owners=top`,
			cascade: foreground,
			says:    map[string]string{"top": "Waits then Goes", "a": "Waits then Goes", "b": "Goes"}},
		"orphaning, what is owned stays with what it owns": {
			objects: `
				ConfigMap top
				ConfigMap a owners=top!
				Secret b owners=a`,
			cascade: orphan,
			says:    map[string]string{"top": "Goes", "a": "Stays", "b": "Stays"}},
		"a finalizer keeps what is below it": {
			objects: `
				ConfigMap top finalizers=test.example.com/x
				ConfigMap a owners=top
				Secret b owners=a`,
			says: map[string]string{"top": "Waits then Goes", "a": "Waits then Goes", "b": "Waits then Goes"}},
		"a finalizer that was put there before governs what is below it": {
			objects: `
				ConfigMap top
				ConfigMap a owners=top finalizers=orphan
				Secret b owners=a`,
			says: map[string]string{"top": "Goes", "a": "Goes", "b": "Stays"}},
		"what one owner leaves behind and another takes along may go or stay": {
			objects: `
				ConfigMap top
				ConfigMap leaves owners=top finalizers=orphan
				ConfigMap takes owners=top
				Secret both owners=leaves,takes`,
			says: map[string]string{"top": "Goes", "leaves": "Goes", "takes": "Goes", "both": "Unknown"}},
		"two that own each other and block go all the same": {
			objects: `
				ConfigMap top
				ConfigMap a owners=top!
				ConfigMap b owners=a!,top!`,
			cascade: foreground,
			says:    map[string]string{"top": "Goes", "a": "Goes", "b": "Goes"}},
		"claims go once no pod is left": {
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
		"collect: a delay waits": {
			policies: policy + `{collect: {decision: Delete, delay: 24h}}`,
			objects: `
				ConfigMap top
				Secret later owners=top
				ConfigMap below owners=later`,
			says: map[string]string{"top": "Goes", "later": "Waits then Goes after 24h", "below": "Waits then Goes after 24h"}},
		"collect: Wait waits, and nobody knows for how long": {
			policies: policy + `{collect: {decision: Wait, after: 1h}}`,
			objects: `
				ConfigMap top
				Secret waits owners=top`,
			says: map[string]string{"top": "Goes", "waits": "Waits"}},
		"what is below that waits as well": {
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
		"collect: Orphan keeps what waits for a foreground deletion, which goes on": {
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
		"propagate: Foreground is not for a client that asks for Orphan": {
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
		"a module that goes by labels": {
			policies: byLabel,
			objects: `
				Secret top
				ConfigMap kept owners=top labels=keep:true
				ConfigMap goes owners=top`,
			says: map[string]string{"top": "Goes", "kept": "Stays", "goes": "Goes"}},
		"a policy at fault keeps": {
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
			w := newWorld(t)
			w.policies(s.policies)
			w.make(s.objects)
			if s.cascade == "" {
				s.cascade = background
			}
			said := w.outcomes(w.preview("top", s.cascade))
			if diff := cmp.Diff(s.says, said); diff != "" {
				t.Fatalf("what it says (-want +got):\n%s", diff)
			}
			w.delete("top", s.cascade)
			w.becomes(said)
			w.goesOn(said)
		})
	}
}

// goesOn takes off what others have put there, and sees that what waits for that
// alone becomes what was said.
func (w *world) goesOn(said map[string]string) {
	w.Helper()
	freed, after := false, map[string]string{}
	for name, text := range said {
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
	for name, text := range said {
		if live := w.get(name); live != nil {
			w.free(name)
		}
		if outcome, then, waits := strings.Cut(text, " then "); waits && outcome == preview.Waits.String() && !strings.Contains(then, " after ") {
			after[name] = then
		}
	}
	w.becomes(after)
}

// What a preview says of random objects is what happens: the seed is in the name.
func TestWhatAPreviewSaysOfRandomObjectsHappens(t *testing.T) {
	for seed := range *seeds {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewSource(seed))
			w := newWorld(t)
			if r.Intn(2) == 0 {
				w.policies(policy + []string{"{collect: {decision: Orphan}}", "{collect: {decision: Delete, delay: 24h}}", "{collect: {decision: Delete, propagation: Orphan}}"}[r.Intn(3)])
			}
			text := random(r)
			w.make(text)
			cascade := []metav1.DeletionPropagation{background, background, foreground, orphan}[r.Intn(4)]
			said := w.outcomes(w.preview("o0", cascade))
			t.Logf("%s, and o0 is deleted by %s: %v", text, cascade, said)
			w.delete("o0", cascade)
			w.becomes(said)
			w.goesOn(said)
		})
	}
}

// random are objects of which each is owned by some before it.
func random(r *rand.Rand) string {
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

func TestANamespaceTakesAlongWhatIsInIt(t *testing.T) {
	w := newWorld(t)
	w.policies(policy + `{collect: {decision: Orphan}}`)
	namespace, err := w.client("Namespace").Get(t.Context(), w.ns, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w.made[w.ns] = namespace
	w.make(`
		ConfigMap a
		Secret b owners=a
		PersistentVolumeClaim data
		ConfigMap held finalizers=test.example.com/x
		ConfigMap below owners=held`)
	said := w.outcomes(w.preview(w.ns, background))
	want := map[string]string{
		w.ns: "Waits then Goes", "a": "Goes", "b": "Goes", "data": "Goes", "held": "Waits then Goes", "below": "Goes", "p": "Goes",
	}
	if diff := cmp.Diff(want, said); diff != "" {
		t.Fatalf("what it says (-want +got):\n%s", diff)
	}
	w.delete(w.ns, background)
	w.becomes(said)
	w.goesOn(said)
}
