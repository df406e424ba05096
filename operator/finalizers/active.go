package finalizers

import (
	"cmp"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/policies"
)

// A key identifies an object in the queue.
type key struct {
	kind      schema.GroupKind
	namespace string
	name      string
	uid       types.UID
}

func (k key) String() string {
	if k.namespace == "" {
		return fmt.Sprintf("%s %s", k.kind.Kind, k.name)
	}
	return fmt.Sprintf("%s %s/%s", k.kind.Kind, k.namespace, k.name)
}

func keyOf(o graph.Object) key {
	return key{o.Kind.GroupKind(), o.Namespace, o.Name, o.UID}
}

// An activeFinalizer is a finalizer in force.
type activeFinalizer struct {
	*policies.Finalizer

	// shared is true if another resource has the same finalizer. Then neither removes it
	// early: the remaining cleanup may be the other's.
	shared bool
}

// appliesTo reports whether the finalizer applies to objects in a namespace.
func (f activeFinalizer) appliesTo(namespace string) bool {
	return f.Namespace == "" || f.Namespace == namespace
}

// readsMetadata reports whether the finalizer's module and conditions read no more of an object
// than its metadata.
func (f activeFinalizer) readsMetadata() bool {
	return f.Matches == nil && (f.Needs == policies.NeedsMetadata || f.Needs == policies.NeedsReference)
}

// releasesAll reports whether the finalizer is removed from all objects. That applies in Monitor
// mode as well, if the resource was in Enforce mode before.
func (f activeFinalizer) releasesAll() bool { return f.Deleting && f.ReleaseOnRemoval && !f.shared }

// releasesAtDeadline reports whether the finalizer is removed from overdue objects.
func (f activeFinalizer) releasesAtDeadline() bool {
	return f.Enforce && f.ReleaseAtDeadline && !f.shared
}

// needsWrite reports whether an object that is not being deleted must be written.
func (f activeFinalizer) needsWrite(hasFinalizer bool) bool {
	if hasFinalizer {
		return f.releasesAll() || f.Withdraw
	}
	return f.Attaches()
}

// failureMessage returns the message of a failure: the reason, and what must change for a
// new attempt.
func (f activeFinalizer) failureMessage(reason string) string {
	return fmt.Sprintf("%s; not retried until the object, the spec of %s or its module changes", reason, f)
}

// inputIdentity identifies the input of a failed evaluation: the failure stands until any part
// of it changes.
func (f activeFinalizer) inputIdentity(fingerprint string) string {
	return fmt.Sprintf("%s %d %.12s %s", f.UID, f.Generation, f.Digest, fingerprint)
}

// isExempt reports whether finalizers are never added to objects in a namespace. In the
// operator's own namespace they could prevent its deletion.
func (o Options) isExempt(namespace string) bool {
	return namespace == metav1.NamespaceSystem || namespace != "" && namespace == o.Namespace
}

// resolveDuplicates returns the finalizers to run. If several resources have the same finalizer,
// those that are being deleted leave their objects to another one and need not wait for
// them: otherwise all would wait for each other.
func resolveDuplicates(list []*policies.Finalizer) (active []activeFinalizer, superseded map[types.UID]bool) {
	byName := map[string][]*policies.Finalizer{}
	for _, f := range list {
		byName[f.Entry] = append(byName[f.Entry], f)
	}
	superseded = map[types.UID]bool{}
	for _, f := range list {
		same := byName[f.Entry]
		winner := slices.MinFunc(same, func(a, b *policies.Finalizer) int {
			if a.Deleting != b.Deleting {
				return map[bool]int{true: 1, false: -1}[a.Deleting]
			}
			return cmp.Compare(a.String(), b.String())
		})
		if f.Deleting && f != winner {
			superseded[f.UID] = true
			continue
		}
		active = append(active, activeFinalizer{f, len(same) > 1})
	}
	return active, superseded
}
