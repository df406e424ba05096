package intents

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/catalog"
	"github.com/gleaner-dev/gleaner/policies"
)

// ownGroup is the API group of this project: modules must not write the resources that control
// them.
const ownGroup = "gleaner.dev"

// verbRead is the verb of read grants; the verbs of write grants are in package policies.
const verbRead policies.Verb = ""

// resolve returns the resource of an intent's kind, if it is granted.
func (e *Executor) resolve(identity Identity, verb policies.Verb, t hostabi.Target) (catalog.Resource, error) {
	r, err := e.findResource(t)
	if err != nil {
		return r, err
	}
	switch {
	case !r.Namespaced && t.Namespace != "":
		return r, errorf(hostabi.ErrorInvalid, "%s is cluster-scoped: remove namespace", t.Kind)
	case identity.Account == policies.ServiceAccount{}:
		return r, errorf(hostabi.ErrorNotGranted, "no serviceAccount is set")
	case identity.Namespace != "" && identity.Account.Namespace != identity.Namespace:
		return r, errorf(hostabi.ErrorNotGranted, "serviceAccount must be in namespace %s", identity.Namespace)
	case identity.Namespace != "" && t.Namespace != identity.Namespace:
		return r, errorf(hostabi.ErrorNotGranted, "a resource in namespace %s is limited to objects in that namespace", identity.Namespace)
	case verb != verbRead && r.Version.Group == ownGroup:
		return r, errorf(hostabi.ErrorNotGranted, "modules must not write objects of group %s", ownGroup)
	}
	if err := checkPathSegments(t); err != nil {
		return r, err
	}
	if !isGranted(identity.Grants, verb, r, t.Namespace) {
		return r, errorf(hostabi.ErrorNotGranted, "no entry of %s covers %s in namespace %q", grantField(verb), r.Version.GroupResource(), t.Namespace)
	}
	return r, nil
}

// MayDelete reports whether the grants cover an intent, and it names an object.
func (e *Executor) MayDelete(identity Identity, d hostabi.DeleteIntent) bool {
	_, err := e.resolveObject(identity, policies.VerbDelete, d.Target)
	return err == nil && d.UID != ""
}

// findResource returns the resource of a kind. If discovery failed, the error is temporary.
func (e *Executor) findResource(t hostabi.Target) (catalog.Resource, error) {
	gv, err := schema.ParseGroupVersion(t.APIVersion)
	if err != nil {
		return catalog.Resource{}, errorf(hostabi.ErrorInvalid, "invalid apiVersion %q", t.APIVersion)
	}
	current := e.options.Catalog()
	if r, ok := current.Resource(gv.WithKind(t.Kind)); ok {
		return r, nil
	}
	if r, ok := current.Preferred(schema.GroupKind{Group: gv.Group, Kind: t.Kind}); ok && r.Stale {
		return catalog.Resource{}, errorf(hostabi.ErrorUnavailable, "%s %s may not be served: discovery failed for its group", t.APIVersion, t.Kind)
	}
	if !current.Serves(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}) { // served by every API server
		return catalog.Resource{}, errorf(hostabi.ErrorUnavailable, "discovery has not finished yet")
	}
	return catalog.Resource{}, errorf(hostabi.ErrorInvalid, "%s %s is not served", t.APIVersion, t.Kind)
}

// checkPathSegments checks that names are single path segments: a slash would address a
// subresource or another path.
func checkPathSegments(t hostabi.Target) error {
	for field, name := range map[string]string{"name": t.Name, "namespace": t.Namespace} {
		if wrong := content.IsPathSegmentName(name); name != "" && len(wrong) != 0 {
			return errorf(hostabi.ErrorInvalid, "%s %q: %s", field, name, wrong[0])
		}
	}
	return nil
}

// isGranted reports whether the grants allow a verb on a resource in a namespace; "" means all
// namespaces.
func isGranted(g policies.Grants, verb policies.Verb, r catalog.Resource, namespace string) bool {
	matches := func(reads policies.ReadRule) bool {
		selected, _ := reads.Selects(r.Version.GroupResource())
		return selected && (!r.Namespaced || reads.CoversNamespace(namespace))
	}
	if verb == verbRead {
		for _, granted := range g.Read {
			if matches(granted) {
				return true
			}
		}
		return false
	}
	for _, granted := range g.Write {
		if granted.Allows(verb) && matches(granted.ReadRule) {
			return true
		}
	}
	return false
}

func grantField(verb policies.Verb) string {
	if verb == verbRead {
		return "grants.read"
	}
	return fmt.Sprintf("grants.write with the verb %s", verb)
}
