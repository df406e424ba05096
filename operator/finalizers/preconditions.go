package finalizers

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

	"github.com/gleaner-dev/gleaner/operator/modulecall"
	"github.com/gleaner-dev/gleaner/operator/objectstate"
)

// A conditionError is an error of matchConditions, which their author has to fix.
type conditionError struct{ error }

// checkPreconditions returns an Outcome and true if the module can't or must not be evaluated.
func (s *subject) checkPreconditions(ctx context.Context) (Outcome, bool) {
	if cycle := s.findCycle(); cycle != nil {
		return Outcome{Reason: Circular, Message: fmt.Sprintf("finalizers wait for each other (%s): remove one of them from after", strings.Join(cycle, " after "))}, true
	}
	if waitFor := s.predecessors(s.entry, s.f.After); len(waitFor) != 0 {
		return Outcome{Reason: Waiting, Message: "waiting for the finalizer " + waitFor[0] + " to be removed (after)"}, true
	}
	if s.f.Loading {
		return Outcome{Reason: Waiting, Message: "waiting for the module: " + s.f.NotReadyReason}, true
	}
	if s.f.Evaluator == nil {
		return Outcome{Reason: NotReady, Message: s.f.NotReadyReason}, true
	}
	selected, err := s.isSelected(ctx)
	condition := conditionError{}
	switch {
	case errors.As(err, &condition):
		return Outcome{Reason: Fault, Message: err.Error(), Fault: err}, true
	case err != nil:
		return Outcome{Reason: HostError, Message: err.Error(), Err: err}, true
	case !selected:
		return Outcome{Reason: NotSelected, Message: fmt.Sprintf("%s does not select the object: change its selectors, or remove the finalizer", s.f)}, true
	}
	return Outcome{}, false
}

// predecessors returns the finalizers in after that the object has.
func (s *subject) predecessors(entry string, after []string) (present []string) {
	for _, other := range after {
		if other != entry && slices.Contains(s.object.GetFinalizers(), other) {
			present = append(present, other)
		}
	}
	return present
}

// findCycle returns a cycle of after fields among the object's finalizers, from this
// finalizer back to itself; nil if there is none.
func (s *subject) findCycle() []string {
	seen := map[string]bool{}
	var follow func(path []string, after []string) []string
	follow = func(path []string, after []string) []string {
		for _, next := range s.predecessors(path[len(path)-1], after) {
			if next == s.entry {
				return append(path, next)
			}
			if seen[next] {
				continue
			}
			seen[next] = true
			if cycle := follow(append(path, next), s.predecessorsOf(next)); cycle != nil {
				return cycle
			}
		}
		return nil
	}
	return follow([]string{s.entry}, s.f.After)
}

// isSelected reports whether the finalizer selects the object.
func (s *subject) isSelected(ctx context.Context) (bool, error) {
	var err error
	if s.namespace, err = s.Reader.Namespace(ctx, s.key.namespace); err != nil {
		return false, fmt.Errorf("read namespace: %w", err)
	}
	p := s.f.Policy
	switch {
	case !p.Selects(s.resource.Version.GroupResource()):
		return false, nil
	case p.NamespaceSelector != nil && !p.NamespaceSelector.Empty() && !p.NamespaceSelector.Matches(s.namespace.Labels):
		return false, nil
	case p.ObjectSelector != nil && !p.ObjectSelector.Matches(labels.Set(s.object.GetLabels())):
		return false, nil
	case p.Matches == nil:
		return true, nil
	}
	visible, err := s.visibleObject(ctx)
	if err != nil {
		return false, fmt.Errorf("evaluate matchConditions: %w", err)
	}
	matches, err := p.Matches(ctx, visible.Object)
	if err != nil && ctx.Err() == nil {
		err = conditionError{err}
	}
	return matches, err
}

// fingerprint returns a hash of what the finalizer can read of the object, without managedFields,
// resourceVersion and the state annotation.
func (s *subject) fingerprint() string {
	o := s.object
	if s.f.readsMetadata() {
		o = modulecall.MetadataOf(o)
	}
	return fingerprintOf(o)
}

func fingerprintOf(o *unstructured.Unstructured) string {
	o = o.DeepCopy()
	o.SetManagedFields(nil)
	o.SetResourceVersion("")
	annotations := o.GetAnnotations()
	delete(annotations, objectstate.FinalizersAnnotation)
	if len(annotations) == 0 {
		annotations = nil
	}
	o.SetAnnotations(annotations)
	data, err := json.Marshal(o.Object)
	if err != nil {
		return err.Error() // still differs from every hash
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:8])
}
