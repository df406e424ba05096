package finalize

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
)

// conditionError is that of matchConditions, which their author has to mend.
type conditionError struct{ error }

// hindered says why the module can't be asked, or is not to be, if that is so.
func (v *visitor) hindered(ctx context.Context) (Note, bool) {
	if circle := v.circle(); circle != nil {
		return Note{Reason: Circular, Message: fmt.Sprintf("finalizers wait for each other (%s): take one of them out of after", strings.Join(circle, " after "))}, true
	}
	if first := v.mustGoFirst(v.entry, v.f.After); len(first) != 0 {
		return Note{Reason: Waits, Message: "it waits for the finalizer " + first[0] + " to be gone (after)"}, true
	}
	if v.f.Loading {
		return Note{Reason: Waits, Message: "it waits for its module: " + v.f.NotReady}, true
	}
	if v.f.Asker == nil {
		return Note{Reason: NotReady, Message: v.f.NotReady}, true
	}
	meant, err := v.meant(ctx)
	condition := conditionError{}
	switch {
	case errors.As(err, &condition):
		return Note{Reason: AtFault, Message: err.Error(), Fault: err}, true
	case err != nil:
		return Note{Reason: Troubled, Message: err.Error(), Err: err}, true
	case !meant:
		return Note{Reason: Unmeant, Message: fmt.Sprintf("%s does not select it: change that, or take the finalizer off", v.f)}, true
	}
	return Note{}, false
}

// mustGoFirst are those of a finalizer's after that the object has.
func (v *visitor) mustGoFirst(entry string, after []string) (first []string) {
	for _, other := range after {
		if other != entry && slices.Contains(v.object.GetFinalizers(), other) {
			first = append(first, other)
		}
	}
	return first
}

// circle finds finalizers of the object that go after each other, from this one back to
// itself; nil if there are none.
func (v *visitor) circle() []string {
	seen := map[string]bool{}
	var follow func(path []string, after []string) []string
	follow = func(path []string, after []string) []string {
		for _, next := range v.mustGoFirst(path[len(path)-1], after) {
			if next == v.entry {
				return append(path, next)
			}
			if seen[next] {
				continue
			}
			seen[next] = true
			if circle := follow(append(path, next), v.after(next)); circle != nil {
				return circle
			}
		}
		return nil
	}
	return follow([]string{v.entry}, v.f.After)
}

// meant reports whether the finalizer is for the object.
func (v *visitor) meant(ctx context.Context) (bool, error) {
	var err error
	if v.namespace, err = v.Reader.Namespace(ctx, v.key.namespace); err != nil {
		return false, fmt.Errorf("read its namespace: %w", err)
	}
	p := v.f.Policy
	switch {
	case !p.Selects(v.resource.Version.GroupResource()):
		return false, nil
	case p.Namespaces != nil && !p.Namespaces.Empty() && !p.Namespaces.Matches(v.namespace.Labels):
		return false, nil
	case p.Objects != nil && !p.Objects.Matches(labels.Set(v.object.GetLabels())):
		return false, nil
	case p.Matches == nil:
		return true, nil
	}
	seen, err := v.seenBy(ctx)
	if err != nil {
		return false, fmt.Errorf("whether its matchConditions hold is not known: %w", err)
	}
	is, err := p.Matches(ctx, seen.Object)
	if err != nil && ctx.Err() == nil {
		err = conditionError{err}
	}
	return is, err
}

// fingerprint tells two states of an object apart, by all that is not our own doing.
func fingerprint(o *unstructured.Unstructured) string {
	o = o.DeepCopy()
	o.SetManagedFields(nil)
	o.SetResourceVersion("")
	annotations := o.GetAnnotations()
	delete(annotations, Annotation)
	if len(annotations) == 0 {
		annotations = nil
	}
	o.SetAnnotations(annotations)
	data, err := json.Marshal(o.Object)
	if err != nil {
		return err.Error() // it is as good as any
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:8])
}
