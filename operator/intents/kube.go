package intents

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/catalog"
	"github.com/gleaner-dev/gleaner/policies"
)

func (e *Executor) get(ctx context.Context, identity Identity, get hostabi.GetIntent) (hostabi.Result, error) {
	r, err := e.resolveObject(identity, verbRead, get.Target)
	if err != nil {
		return hostabi.Result{}, err
	}
	c := newCall(http.MethodGet, r, get.Target)
	return e.callForObject(ctx, identity, describeCall("read", c, get.Name), c)
}

func (e *Executor) create(ctx context.Context, identity Identity, create hostabi.CreateIntent) (hostabi.Result, error) {
	var o hostabi.Object
	if err := o.UnmarshalJSON(create.Object); err != nil {
		return hostabi.Result{}, errorf(hostabi.ErrorInvalid, "create: invalid object: %s", err)
	}
	t := hostabi.Target{APIVersion: o.APIVersion, Kind: o.Kind, Namespace: o.Metadata.Namespace, Name: o.Metadata.Name}
	r, err := e.resolveObject(identity, policies.VerbCreate, t)
	if err != nil {
		return hostabi.Result{}, err
	}
	c := newCall(http.MethodPost, r, t)
	c.name, c.body, c.mediaType = "", create.Object, runtime.ContentTypeJSON
	c.query = writeOptions(identity)
	return e.callForObject(ctx, identity, describeCall("create", c, t.Name), c)
}

func (e *Executor) delete(ctx context.Context, identity Identity, d hostabi.DeleteIntent) (hostabi.Result, error) {
	r, err := e.resolveObject(identity, policies.VerbDelete, d.Target)
	if err != nil {
		return hostabi.Result{}, err
	}
	if d.UID == "" {
		return hostabi.Result{}, errorf(hostabi.ErrorInvalid, "delete %s %s: uid is required", d.Kind, d.Name)
	}
	options := metav1.DeleteOptions{
		TypeMeta:      metav1.TypeMeta{APIVersion: "v1", Kind: "DeleteOptions"},
		Preconditions: metav1.NewUIDPreconditions(d.UID), GracePeriodSeconds: d.GracePeriodSeconds,
	}
	if d.ResourceVersion != "" {
		options.Preconditions.ResourceVersion = &d.ResourceVersion
	}
	if d.Propagation != "" {
		propagation := metav1.DeletionPropagation(d.Propagation)
		options.PropagationPolicy = &propagation
	}
	c := newCall(http.MethodDelete, r, d.Target)
	c.mediaType = runtime.ContentTypeJSON
	if c.body, err = json.Marshal(options); err != nil {
		return hostabi.Result{}, fmt.Errorf("encode delete options: %w", err)
	}
	if _, err := e.clients.do(ctx, identity.Account, c); err != nil && !errors.Is(err, errResponseTooLarge) {
		return hostabi.Result{}, e.apiError(describeCall("delete", c, d.Name), identity.Account, c, err)
	}
	return hostabi.Result{}, nil
}

// resolveObject is like resource, for intents about a single object.
func (e *Executor) resolveObject(identity Identity, verb policies.Verb, t hostabi.Target) (catalog.Resource, error) {
	r, err := e.resolve(identity, verb, t)
	switch {
	case err != nil:
		return r, err
	case t.Name == "":
		return r, errorf(hostabi.ErrorInvalid, "%s: name is required", t.Kind)
	case r.Namespaced && t.Namespace == "":
		return r, errorf(hostabi.ErrorInvalid, "%s %s: namespace is required", t.Kind, t.Name)
	}
	return r, nil
}

// callForObject makes a call that returns a single object.
func (e *Executor) callForObject(ctx context.Context, identity Identity, action string, c apiCall) (hostabi.Result, error) {
	data, err := e.clients.do(ctx, identity.Account, c)
	if err != nil {
		return hostabi.Result{}, e.apiError(action, identity.Account, c, err)
	}
	var o hostabi.Object
	if err := o.UnmarshalJSON(data); err != nil {
		return hostabi.Result{}, fmt.Errorf("%s: decode object: %w", action, err)
	}
	if m := o.Metadata; m.Namespace != c.namespace || c.name != "" && (m.UID == "" || m.Name != c.name) {
		return hostabi.Result{}, fmt.Errorf("%s: response contains another object or none", action)
	}
	return hostabi.Result{Object: &o}, nil
}

func (e *Executor) list(ctx context.Context, identity Identity, list hostabi.ListIntent) (hostabi.Result, error) {
	t := hostabi.Target{APIVersion: list.APIVersion, Kind: list.Kind, Namespace: list.Namespace}
	r, err := e.resolve(identity, verbRead, t)
	if err != nil {
		return hostabi.Result{}, err
	}
	limit := hostabi.MaxListLimit
	if list.Limit > 0 {
		limit = min(list.Limit, limit)
	}
	c := newCall(http.MethodGet, r, t)
	c.query = map[string]string{}
	for name, value := range map[string]string{
		"labelSelector": list.LabelSelector, "fieldSelector": list.FieldSelector, "continue": list.Continue,
	} {
		if value != "" {
			c.query[name] = value
		}
	}
	action := describeCall("list", c, "")
	data, err := e.listPage(ctx, identity, c, limit)
	if err != nil {
		return hostabi.Result{}, e.apiError(action, identity.Account, c, err)
	}
	page, err := parseList(data, r)
	if err != nil {
		return hostabi.Result{}, fmt.Errorf("%s: %w", action, err)
	}
	return hostabi.Result{List: page}, nil
}

// listPage lists at most limit objects. If the response is too large, it retries with a
// smaller limit: the continue token leads to the rest.
func (e *Executor) listPage(ctx context.Context, identity Identity, c apiCall, limit int) ([]byte, error) {
	for {
		c.query["limit"] = strconv.Itoa(limit)
		data, err := e.clients.do(ctx, identity.Account, c)
		if !errors.Is(err, errResponseTooLarge) || limit == 1 {
			return data, err
		}
		limit = max(1, limit/4)
	}
}

// parseList decodes a list. The API server omits apiVersion and kind of built-in types from
// the items.
func parseList(data []byte, r catalog.Resource) (*hostabi.ListResult, error) {
	var list struct {
		Metadata metav1.ListMeta              `json:"metadata"`
		Items    []map[string]json.RawMessage `json:"items"`
	}
	if err := json.Unmarshal(data, &list); err != nil {
		return nil, fmt.Errorf("decode list: %w", err)
	}
	page := &hostabi.ListResult{Items: []hostabi.Object{}, Continue: list.Metadata.Continue}
	for _, item := range list.Items {
		if item == nil {
			return nil, errors.New("list contains an item that is not an object")
		}
		setDefaults(item, map[string]string{"apiVersion": r.Version.GroupVersion().String(), "kind": r.Kind})
		body, err := json.Marshal(item)
		if err != nil {
			return nil, fmt.Errorf("encode list item: %w", err)
		}
		var o hostabi.Object
		if err := o.UnmarshalJSON(body); err != nil {
			return nil, err
		}
		page.Items = append(page.Items, o)
	}
	return page, nil
}

func newCall(method string, r catalog.Resource, t hostabi.Target) apiCall {
	return apiCall{method: method, resource: r.Version, namespace: t.Namespace, name: t.Name}
}

// describeCall describes a call in errors: the verb and the object.
func describeCall(verb string, c apiCall, name string) string {
	return fmt.Sprintf("%s %s %s", verb, c.resource.Resource, types.NamespacedName{Namespace: c.namespace, Name: name})
}

// writeOptions returns the query of writes. Unknown fields are rejected rather than silently
// dropped.
func writeOptions(identity Identity) map[string]string {
	return map[string]string{"fieldManager": fieldManager(identity.Name), "fieldValidation": metav1.FieldValidationStrict}
}

// maxFieldManagerBytes is the maximum length of a field manager's name in bytes.
const maxFieldManagerBytes = 128

// fieldManager returns the field manager of a finalizer. A long name ends with a hash, since
// managers with the same name would own each other's fields.
func fieldManager(finalizer string) string {
	name := "gleaner/" + finalizer
	if len(name) <= maxFieldManagerBytes {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	hash := "-" + hex.EncodeToString(sum[:5])
	return truncate(name, maxFieldManagerBytes-len(hash)) + hash
}
