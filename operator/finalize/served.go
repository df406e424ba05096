package finalize

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

// key names an object.
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

// served is a finalizer in force, with what follows from it.
type served struct {
	*policies.Finalizer

	// shared tells that another resource has the same finalizer. Then neither takes
	// it off: the work that is left may be the other's.
	shared bool
}

// reaches reports whether the finalizer may be about what is in a namespace.
func (f served) reaches(namespace string) bool {
	return f.Namespace == "" || f.Namespace == namespace
}

// frees reports whether the finalizer is taken off everything. That is so in Monitor,
// too, if the resource was in force once.
func (f served) frees() bool { return f.Removed && f.FreeAtRemoval && !f.shared }

// freesAtDeadline reports whether the finalizer is taken off what is overdue.
func (f served) freesAtDeadline() bool { return f.Enforce && f.FreeAtDeadline && !f.shared }

// wants reports whether an object that is not being deleted is to be written.
func (f served) wants(carries bool) bool {
	if carries {
		return f.frees()
	}
	return f.Attaches()
}

// exempt reports whether finalizers are never put on objects of a namespace. Those of
// the operator's own could keep it from being deleted.
func (o Options) exempt(namespace string) bool {
	return namespace == metav1.NamespaceSystem || namespace != "" && namespace == o.Namespace
}

// heirs returns the finalizers that have their objects served. Of several of one name
// those that are being deleted leave the objects to another one, and need not wait for
// them: all wait for each other otherwise.
func heirs(list []*policies.Finalizer) (serve []served, left map[types.UID]bool) {
	by := map[string][]*policies.Finalizer{}
	for _, f := range list {
		by[f.Entry] = append(by[f.Entry], f)
	}
	left = map[types.UID]bool{}
	for _, f := range list {
		same := by[f.Entry]
		heir := slices.MinFunc(same, func(a, b *policies.Finalizer) int {
			if a.Removed != b.Removed {
				return map[bool]int{true: 1, false: -1}[a.Removed]
			}
			return cmp.Compare(a.String(), b.String())
		})
		if f.Removed && f != heir {
			left[f.UID] = true
			continue
		}
		serve = append(serve, served{f, len(same) > 1})
	}
	return serve, left
}
