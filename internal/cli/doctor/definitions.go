package doctor

import (
	"context"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gleaner-dev/gleaner/crds"
)

// definitions checks that Gleaner's CustomResourceDefinitions are installed, and match this version.
func (p *checker) definitions(ctx context.Context) []Finding {
	definitions, err := crds.Definitions()
	if err != nil {
		return []Finding{unknown("", "%v", err)}
	}
	const install = "kubectl apply --server-side -k config/crd, of this version"
	var found []Finding
	missing, optional := 0, 0
	for _, want := range definitions {
		have, err := p.extensions.ApiextensionsV1().CustomResourceDefinitions().Get(ctx, want.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err) && crds.Component(want.Name) != "":
			optional++ // not every installation has it
		case apierrors.IsNotFound(err):
			missing++
			found = append(found, warning(install, "%s is not installed: its resources can't be used", want.Name))
		case err != nil:
			found = append(found, unknown("", "%s can't be read: %v", want.Name, err))
		case !established(have):
			found = append(found, problem("see kubectl describe crd "+want.Name, "%s is not established", want.Name))
		case !sameDefinition(have, want):
			found = append(found, warning(install, "%s does not match version %s: fields may be missing or dropped", want.Name, p.Version))
		}
	}
	if missing == len(definitions)-optional {
		return []Finding{warning(install, "no CustomResourceDefinition of Gleaner is installed: policies and finalizers can't be used")}
	}
	return findingsOrOK(found, "all %d are installed and match version %s", len(definitions)-optional, p.Version)
}

func established(d *apiextensionsv1.CustomResourceDefinition) bool {
	for _, c := range d.Status.Conditions {
		if c.Type == apiextensionsv1.Established {
			return c.Status == apiextensionsv1.ConditionTrue
		}
	}
	return false
}

// sameDefinition reports whether two definitions have the same versions, fields and validation rules.
func sameDefinition(a, b *apiextensionsv1.CustomResourceDefinition) bool {
	if len(a.Spec.Versions) != len(b.Spec.Versions) || a.Spec.Scope != b.Spec.Scope {
		return false
	}
	for i := range a.Spec.Versions {
		v, w := a.Spec.Versions[i], b.Spec.Versions[i]
		if v.Name != w.Name || !equality.Semantic.DeepEqual(v.Schema, w.Schema) {
			return false
		}
	}
	return true
}
