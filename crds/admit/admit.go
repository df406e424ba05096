// Package admit does to Gleaner's custom resources what an API server does that has
// their definitions: it refuses what they don't allow, and sets their defaults. With
// it, resources in files are as they would be once they were applied.
//
// It asks no API server, and knows nothing of admission policies.
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

// kinds are compiled when they are first needed, which takes a while.
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

// Object sets the defaults of one of Gleaner's custom resources. The error is of the
// kind that an API server answers with, and names everything that is wrong. Other objects are left as they are.
func Object(ctx context.Context, o *unstructured.Unstructured) error {
	all, err := kinds()
	if err != nil {
		return err
	}
	gvk := o.GroupVersionKind()
	k, is := all[gvk]
	if !is {
		return unknown(all, gvk)
	}
	tried := o.DeepCopy()
	delete(tried.Object, "status") // of the operator: a dump may be of another release
	if strangers := k.strangers(tried); len(strangers) != 0 {
		return apierrors.NewBadRequest(fmt.Sprintf("%s in version %q cannot be handled as a %s: strict decoding error: %s",
			gvk.Kind, gvk.Version, gvk.Kind, strings.Join(strangers, ", ")))
	}
	defaulting.Default(tried.Object, k.schema)
	if wrong := k.check(ctx, tried); len(wrong) != 0 {
		return apierrors.NewInvalid(gvk.GroupKind(), o.GetName(), wrong)
	}
	o.Object["spec"] = tried.Object["spec"]
	return nil
}

// strangers takes off the fields that there are not.
func (k kind) strangers(o *unstructured.Unstructured) []string {
	var list []string
	for _, path := range pruning.PruneWithOptions(o.Object, k.schema, true, structural.UnknownFieldPathOptions{TrackUnknownFieldPaths: true}) {
		list = append(list, fmt.Sprintf("unknown field %q", path))
	}
	return list
}

// unknown refuses a kind of ours that there is not.
func unknown(all map[schema.GroupVersionKind]kind, gvk schema.GroupVersionKind) error {
	var others []string
	ours := false
	for known := range all {
		ours = ours || known.Group == gvk.Group
		others = append(others, known.GroupVersion().String()+" "+known.Kind)
	}
	if !ours {
		return nil
	}
	slices.Sort(others)
	return fmt.Errorf("there is no %s %s: write one of %s", gvk.GroupVersion(), gvk.Kind, strings.Join(others, ", "))
}

// check is in the order of an API server.
func (k kind) check(ctx context.Context, o *unstructured.Unstructured) field.ErrorList {
	var wrong field.ErrorList
	if !k.namespaced && o.GetNamespace() != "" {
		wrong = append(wrong, field.Forbidden(field.NewPath("metadata", "namespace"), "a "+o.GetKind()+" is in no namespace: leave it out"))
	}
	wrong = append(wrong, validation.ValidateCustomResource(nil, o.Object, k.validator)...)
	wrong = append(wrong, listtype.ValidateListSetsAndMaps(nil, k.schema, o.Object)...)
	if slices.ContainsFunc(wrong, blocks) {
		return wrong
	}
	broken, _ := k.rules.Validate(ctx, nil, k.schema, o.Object, nil, celconfig.RuntimeCELCostBudget)
	return append(wrong, broken...)
}

// blocks reports whether something is wrong that rules can't be tried with.
func blocks(e *field.Error) bool {
	switch e.Type {
	case field.ErrorTypeRequired, field.ErrorTypeTooLong, field.ErrorTypeTooMany, field.ErrorTypeTypeInvalid:
		return true
	default:
		return false
	}
}
