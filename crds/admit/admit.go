// Package admit validates Gleaner's custom resources and sets their defaults, as an
// API server with their CustomResourceDefinitions does. Resources in files are then
// the same as after kubectl apply.
//
// It contacts no API server, and does not evaluate admission policies.
package admit

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structural "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"

	"github.com/gleaner-dev/gleaner/crds"
)

// kind is one of Gleaner's custom resources.
type kind struct {
	namespaced bool
	schema     *structural.Structural
	validator  validation.SchemaValidator
	rules      *cel.Validator
}

// kinds compiles the schemas on first use, which is slow.
var kinds = sync.OnceValues(func() (map[schema.GroupVersionKind]kind, error) {
	definitions, err := crds.Definitions()
	if err != nil {
		return nil, err
	}
	all := map[schema.GroupVersionKind]kind{}
	for _, d := range definitions {
		for _, version := range d.Spec.Versions {
			k, err := compile(version)
			if err != nil {
				return nil, fmt.Errorf("read the schema of %s: %w", d.Name, err)
			}
			k.namespaced = d.Spec.Scope == apiextensionsv1.NamespaceScoped
			all[schema.GroupVersionKind{Group: d.Spec.Group, Version: version.Name, Kind: d.Spec.Names.Kind}] = k
		}
	}
	return all, nil
})

func compile(version apiextensionsv1.CustomResourceDefinitionVersion) (kind, error) {
	var internal apiextensions.JSONSchemaProps
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(version.Schema.OpenAPIV3Schema, &internal, nil); err != nil {
		return kind{}, err
	}
	k := kind{}
	var err error
	if k.schema, err = structural.NewStructural(&internal); err != nil {
		return kind{}, err
	}
	k.validator, _, err = validation.NewSchemaValidator(&internal)
	k.rules = cel.NewValidator(k.schema, true, celconfig.PerCallLimit)
	return k, err
}

// Admit validates one of Gleaner's custom resources and sets its defaults. The
// error is an API status error, as from an API server, with all problems. Objects
// of other groups are not changed.
func Admit(ctx context.Context, o *unstructured.Unstructured) error {
	all, err := kinds()
	if err != nil {
		return err
	}
	gvk := o.GroupVersionKind()
	k, ok := all[gvk]
	if !ok {
		return unknownKind(all, gvk)
	}
	obj := o.DeepCopy()
	delete(obj.Object, "status") // it belongs to the operator; a dump may be from another release
	if unknown := k.pruneUnknown(obj); len(unknown) != 0 {
		return apierrors.NewBadRequest(fmt.Sprintf("%s in version %q cannot be handled as a %s: strict decoding error: %s",
			gvk.Kind, gvk.Version, gvk.Kind, strings.Join(unknown, ", ")))
	}
	defaulting.Default(obj.Object, k.schema)
	if errs := k.validate(ctx, obj); len(errs) != 0 {
		return apierrors.NewInvalid(gvk.GroupKind(), o.GetName(), errs)
	}
	o.Object["spec"] = obj.Object["spec"]
	return nil
}

// pruneUnknown prunes unknown fields and returns them.
func (k kind) pruneUnknown(o *unstructured.Unstructured) []string {
	var list []string
	for _, path := range pruning.PruneWithOptions(o.Object, k.schema, true, structural.UnknownFieldPathOptions{TrackUnknownFieldPaths: true}) {
		list = append(list, fmt.Sprintf("unknown field %q", path))
	}
	return list
}

// unknownKind returns an error for an unknown kind of Gleaner's group.
func unknownKind(all map[schema.GroupVersionKind]kind, gvk schema.GroupVersionKind) error {
	var others []string
	sameGroup := false
	for known := range all {
		sameGroup = sameGroup || known.Group == gvk.Group
		others = append(others, known.GroupVersion().String()+" "+known.Kind)
	}
	if !sameGroup {
		return nil
	}
	slices.Sort(others)
	return fmt.Errorf("unknown kind %s %s: write one of %s", gvk.GroupVersion(), gvk.Kind, strings.Join(others, ", "))
}

// validate validates in the same order as an API server.
func (k kind) validate(ctx context.Context, o *unstructured.Unstructured) field.ErrorList {
	var errs field.ErrorList
	if !k.namespaced && o.GetNamespace() != "" {
		errs = append(errs, field.Forbidden(field.NewPath("metadata", "namespace"), "a "+o.GetKind()+" is cluster-scoped: remove it"))
	}
	errs = append(errs, validation.ValidateCustomResource(nil, o.Object, k.validator)...)
	errs = append(errs, listtype.ValidateListSetsAndMaps(nil, k.schema, o.Object)...)
	if slices.ContainsFunc(errs, preventsRules) {
		return errs
	}
	ruleErrs, _ := k.rules.Validate(ctx, nil, k.schema, o.Object, nil, celconfig.RuntimeCELCostBudget)
	return append(errs, ruleErrs...)
}

// preventsRules reports whether an error prevents the evaluation of CEL rules.
func preventsRules(e *field.Error) bool {
	switch e.Type {
	case field.ErrorTypeRequired, field.ErrorTypeTooLong, field.ErrorTypeTooMany, field.ErrorTypeTypeInvalid:
		return true
	default:
		return false
	}
}
