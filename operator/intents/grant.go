package intents

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/catalog"
	"github.com/gleaner-dev/gleaner/policies"
)

// own is the API group of this project: what governs modules is not theirs to
// write.
const own = "gleaner.dev"

// reading is what takes a grant to read; the other verbs are those of policies.
const reading policies.Verb = ""

// resource finds what an intent names by kind, and sees that it is granted.
func (e *Executor) resource(on Behalf, verb policies.Verb, t hostabi.Target) (catalog.Resource, error) {
	r, err := e.served(t)
	if err != nil {
		return r, err
	}
	switch {
	case !r.Namespaced && t.Namespace != "":
		return r, problemf(hostabi.ErrorInvalid, "%s has no namespace: leave it out", t.Kind)
	case on.Account == policies.Account{}:
		return r, problemf(hostabi.ErrorNotGranted, "no serviceAccount is named, as which this could be done")
	case on.Namespace != "" && on.Account.Namespace != on.Namespace:
		return r, problemf(hostabi.ErrorNotGranted, "a serviceAccount of another namespace than %s does nothing for what is in it", on.Namespace)
	case on.Namespace != "" && t.Namespace != on.Namespace:
		return r, problemf(hostabi.ErrorNotGranted, "a resource of namespace %s reaches objects of that namespace alone", on.Namespace)
	case verb != reading && r.Version.Group == own:
		return r, problemf(hostabi.ErrorNotGranted, "objects of the group %s are not written by modules", own)
	}
	if err := segments(t); err != nil {
		return r, err
	}
	if !covers(on.Grants, verb, r, t.Namespace) {
		return r, problemf(hostabi.ErrorNotGranted, "none of %s covers %s in namespace %q", field(verb), r.Version.GroupResource(), t.Namespace)
	}
	return r, nil
}

// served finds the resource of a kind. Types that nobody could be asked about may
// well be there the next time.
func (e *Executor) served(t hostabi.Target) (catalog.Resource, error) {
	gv, err := schema.ParseGroupVersion(t.APIVersion)
	if err != nil {
		return catalog.Resource{}, problemf(hostabi.ErrorInvalid, "%s is no apiVersion", t.APIVersion)
	}
	known := e.options.Catalog()
	if r, ok := known.Resource(gv.WithKind(t.Kind)); ok {
		return r, nil
	}
	if r, ok := known.Preferred(schema.GroupKind{Group: gv.Group, Kind: t.Kind}); ok && r.Stale {
		return catalog.Resource{}, problemf(hostabi.ErrorUnavailable, "whether %s %s is served is not known: discovery failed for its group", t.APIVersion, t.Kind)
	}
	if !known.Serves(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}) { // every API server has them
		return catalog.Resource{}, problemf(hostabi.ErrorUnavailable, "which types there are is not known yet")
	}
	return catalog.Resource{}, problemf(hostabi.ErrorInvalid, "%s %s is not served", t.APIVersion, t.Kind)
}

// segments sees that names stay one step of a path each: a slash in one would lead
// to a subresource, or elsewhere.
func segments(t hostabi.Target) error {
	for what, name := range map[string]string{"name": t.Name, "namespace": t.Namespace} {
		if wrong := content.IsPathSegmentName(name); name != "" && len(wrong) != 0 {
			return problemf(hostabi.ErrorInvalid, "the %s %q %s", what, name, wrong[0])
		}
	}
	return nil
}

// covers reports whether a resource may be used so, in a namespace or in all of them
// for "".
func covers(g policies.Grants, verb policies.Verb, r catalog.Resource, namespace string) bool {
	fits := func(reads policies.Reads) bool {
		selected, _ := reads.Selects(r.Version.GroupResource())
		return selected && (!r.Namespaced || reads.Covers(namespace))
	}
	if verb == reading {
		for _, granted := range g.Read {
			if fits(granted) {
				return true
			}
		}
		return false
	}
	for _, granted := range g.Write {
		if granted.Allows(verb) && fits(granted.Reads) {
			return true
		}
	}
	return false
}

func field(verb policies.Verb) string {
	if verb == reading {
		return "grants.read"
	}
	return fmt.Sprintf("grants.write with the verb %s", verb)
}
