package differential

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/ptr"
)

// scriptNamespaces is a script's namespaces on one side.
type scriptNamespaces struct {
	first, second string // namespaces
	prefix        string // of its objects' names
}

// execution is the execution of a script on one side.
type execution struct {
	*side
	scriptNamespaces
	t       *testing.T
	created map[string]step      // by object, as last created
	uids    map[string]types.UID // by object, of the last created
	names   map[types.UID]string // object#n, for output
	deleted map[types.UID]bool   // by the script
}

func newExecution(t *testing.T, s *side) *execution {
	t.Helper()
	g := &execution{side: s, t: t, created: map[string]step{}, uids: map[string]types.UID{}, names: map[types.UID]string{}, deleted: map[types.UID]bool{}}
	for _, namespace := range []*string{&g.first, &g.second} {
		made, err := s.kube.CoreV1().Namespaces().Create(t.Context(),
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "script-"}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		*namespace = made.Name
	}
	g.prefix = g.first
	t.Cleanup(g.releaseAll)
	return g
}

// releaseAll releases all objects that the script has left, so that the next scripts
// find idle collectors.
func (g *execution) releaseAll() {
	ctx := context.WithoutCancel(g.t.Context())
	orphan := metav1.DeletePropagationBackground
	for _, object := range slices.Sorted(maps.Keys(g.created)) {
		client := g.clientFor(object)
		_, _ = client.Patch(ctx, g.prefix+"-"+object, types.MergePatchType,
			[]byte(`{"metadata":{"finalizers":null,"ownerReferences":null}}`), metav1.PatchOptions{})
		_ = client.Delete(ctx, g.prefix+"-"+object, metav1.DeleteOptions{PropagationPolicy: &orphan})
	}
}

func (s *side) client(k kind, namespace string) dynamic.ResourceInterface {
	if !k.namespaced {
		return s.objects.Resource(k.resource)
	}
	return s.objects.Resource(k.resource).Namespace(namespace)
}

// clientFor returns the client for an object of the script.
func (g *execution) clientFor(object string) dynamic.ResourceInterface {
	made := g.created[object]
	if made.elsewhere {
		return g.client(made.kind, g.second)
	}
	return g.client(made.kind, g.first)
}

func (s *side) create(t *testing.T, p scriptNamespaces, st step, owners []metav1.OwnerReference) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{Object: map[string]any{}}
	o.SetGroupVersionKind(st.kind.resource.GroupVersion().WithKind(st.kind.name))
	o.SetGenerateName(st.object + "-")
	o.SetOwnerReferences(owners)
	made, err := s.client(st.kind, p.first).Create(t.Context(), o, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("%s: create %s: %v", s.name, st.object, err)
	}
	return made
}

// isNew reports whether a step creates an object for the first time.
func (g *execution) isNew(st step) bool {
	_, made := g.created[st.object]
	return st.op == "create" && !made
}

// isHarmless reports whether a step has created an object that requires nothing of a
// collector: all its references are valid, and their owners exist.
func (g *execution) isHarmless(st step) bool {
	if st.op != "create" {
		return false
	}
	for _, r := range st.owners {
		owner := g.created[r.object]
		if r.wrong != "" || owner.kind.namespaced && (!st.kind.namespaced || owner.elsewhere != st.elsewhere) {
			return false
		}
		live, err := g.clientFor(r.object).Get(g.t.Context(), g.prefix+"-"+r.object, metav1.GetOptions{})
		if err != nil || live.GetUID() != g.uids[r.object] || live.GetDeletionTimestamp() != nil {
			return false
		}
	}
	return true
}

// unblockedEarly reports whether the collector of this side unblocked a
// reference that the other did not: defect 3.19.
func (g *execution) unblockedEarly(other *execution) bool {
	theirs := map[string]bool{}
	for _, uid := range slices.Collect(maps.Keys(other.names)) {
		for _, owner := range other.unblocked.ownersOf(uid) {
			theirs[other.nameOf(uid)+" "+other.nameOf(owner)] = true
		}
	}
	for uid, name := range g.names {
		for _, owner := range g.unblocked.ownersOf(uid) {
			if !theirs[name+" "+g.nameOf(owner)] {
				return true
			}
		}
	}
	return false
}

// execute executes a step, and returns the API server's response, which must
// be the same on both sides.
func (g *execution) execute(st step) (answer string) {
	var err error
	switch st.op {
	case "create":
		err = g.create(st)
	case "own":
		err = g.patch(st.object, map[string]any{"ownerReferences": g.references(st.owners)})
	case "finalizers":
		err = g.patch(st.object, map[string]any{"finalizers": st.finalizers})
	case "delete":
		g.deleted[g.uids[st.object]] = true
		err = g.clientFor(st.object).Delete(g.t.Context(), g.prefix+"-"+st.object, deleteOptions(st.policy))
	}
	if err != nil {
		return string(apierrors.ReasonForError(err))
	}
	return "done"
}

func deleteOptions(policy string) metav1.DeleteOptions {
	switch policy {
	case "":
		return metav1.DeleteOptions{}
	case "orphanDependents":
		return metav1.DeleteOptions{OrphanDependents: ptr.To(true)} //nolint:staticcheck // clients still send it
	case "noOrphanDependents":
		return metav1.DeleteOptions{OrphanDependents: ptr.To(false)} //nolint:staticcheck // clients still send it
	default:
		return metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletionPropagation(policy))}
	}
}

func (g *execution) create(st step) error {
	o := &unstructured.Unstructured{Object: map[string]any{}}
	o.SetGroupVersionKind(st.kind.resource.GroupVersion().WithKind(st.kind.name))
	o.SetName(g.prefix + "-" + st.object)
	o.SetOwnerReferences(g.references(st.owners))
	o.SetFinalizers(st.finalizers)
	g.created[st.object] = st
	made, err := g.clientFor(st.object).Create(g.t.Context(), o, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	n := 1
	for _, name := range g.names {
		if strings.HasPrefix(name, st.object+"#") {
			n++
		}
	}
	g.uids[st.object] = made.GetUID()
	g.names[made.GetUID()] = fmt.Sprintf("%s#%d", st.object, n)
	return nil
}

func (g *execution) patch(object string, metadata map[string]any) error {
	body, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return err
	}
	_, err = g.clientFor(object).Patch(g.t.Context(), g.prefix+"-"+object, types.MergePatchType, body, metav1.PatchOptions{})
	return err
}

// references returns the references of a step, including invalid ones.
func (g *execution) references(refs []reference) []metav1.OwnerReference {
	out := []metav1.OwnerReference{}
	for _, r := range refs {
		made := g.created[r.object]
		ref := metav1.OwnerReference{
			APIVersion: made.kind.resource.GroupVersion().String(), Kind: made.kind.name,
			Name: g.prefix + "-" + r.object, UID: g.uids[r.object],
		}
		if r.blocks {
			ref.BlockOwnerDeletion = ptr.To(true)
		}
		switch r.wrong {
		case "name":
			ref.Name += "-wrong"
		case "kind":
			ref.Kind = "Wrong"
		case "version":
			ref.APIVersion = made.kind.resource.GroupVersion().String() + "beta9"
		case "uid":
			ref.UID = "never-" + ref.UID
		}
		if ref.UID == "" {
			ref.UID = types.UID("unmade-" + r.object) // its creation was refused
		}
		out = append(out, ref)
	}
	return out
}

// state is the state of the script's existing objects.
type state map[string]objectState

type objectState struct {
	Terminating bool
	Finalizers  string
	Owners      string
}

// currentState returns the current state.
func (g *execution) currentState() state {
	g.t.Helper()
	now := state{}
	for object := range g.created {
		o, err := g.clientFor(object).Get(g.t.Context(), g.prefix+"-"+object, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			g.t.Fatalf("%s: get %s: %v", g.name, object, err)
		}
		seen := objectState{Terminating: o.GetDeletionTimestamp() != nil, Finalizers: strings.Join(o.GetFinalizers(), " ")}
		var owners []string
		for _, ref := range o.GetOwnerReferences() {
			owners = append(owners, strings.TrimPrefix(ref.Name, g.prefix+"-")+"/"+ref.Kind+"/"+g.nameOf(ref.UID))
		}
		seen.Owners = strings.Join(owners, " ")
		now[g.nameOf(o.GetUID())] = seen
	}
	return now
}

func (g *execution) nameOf(uid types.UID) string {
	if name, ok := g.names[uid]; ok {
		return name
	}
	return "?"
}
