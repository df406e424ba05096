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

func (e *Executor) get(ctx context.Context, on Behalf, get hostabi.GetIntent) (hostabi.Result, error) {
	r, err := e.object(on, reading, get.Target)
	if err != nil {
		return hostabi.Result{}, err
	}
	c := callOf(http.MethodGet, r, get.Target)
	return e.one(ctx, on, about("read", c, get.Name), c)
}

func (e *Executor) create(ctx context.Context, on Behalf, create hostabi.CreateIntent) (hostabi.Result, error) {
	var o hostabi.Object
	if err := o.UnmarshalJSON(create.Object); err != nil {
		return hostabi.Result{}, problemf(hostabi.ErrorInvalid, "create an object: it is none: %s", err)
	}
	t := hostabi.Target{APIVersion: o.APIVersion, Kind: o.Kind, Namespace: o.Metadata.Namespace, Name: o.Metadata.Name}
	r, err := e.object(on, policies.VerbCreate, t)
	if err != nil {
		return hostabi.Result{}, err
	}
	c := callOf(http.MethodPost, r, t)
	c.name, c.body, c.mediaType = "", create.Object, runtime.ContentTypeJSON
	c.query = strict(on)
	return e.one(ctx, on, about("create", c, t.Name), c)
}

func (e *Executor) delete(ctx context.Context, on Behalf, d hostabi.DeleteIntent) (hostabi.Result, error) {
	r, err := e.object(on, policies.VerbDelete, d.Target)
	if err != nil {
		return hostabi.Result{}, err
	}
	if d.UID == "" {
		return hostabi.Result{}, problemf(hostabi.ErrorInvalid, "delete %s %s: write the uid of the object that is meant", d.Kind, d.Name)
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
	c := callOf(http.MethodDelete, r, d.Target)
	c.mediaType = runtime.ContentTypeJSON
	if c.body, err = json.Marshal(options); err != nil {
		return hostabi.Result{}, fmt.Errorf("write options: %w", err)
	}
	if _, err := e.accounts.do(ctx, on.Account, c); err != nil && !errors.Is(err, errLarge) {
		return hostabi.Result{}, e.problemOf(about("delete", c, d.Name), on.Account, c, err)
	}
	return hostabi.Result{}, nil
}

// object is resource for an intent about a single object.
func (e *Executor) object(on Behalf, verb policies.Verb, t hostabi.Target) (catalog.Resource, error) {
	r, err := e.resource(on, verb, t)
	switch {
	case err != nil:
		return r, err
	case t.Name == "":
		return r, problemf(hostabi.ErrorInvalid, "%s: write the name of the object that is meant", t.Kind)
	case r.Namespaced && t.Namespace == "":
		return r, problemf(hostabi.ErrorInvalid, "%s %s: write its namespace", t.Kind, t.Name)
	}
	return r, nil
}

// one makes a call whose answer is the object.
func (e *Executor) one(ctx context.Context, on Behalf, doing string, c call) (hostabi.Result, error) {
	data, err := e.accounts.do(ctx, on.Account, c)
	if err != nil {
		return hostabi.Result{}, e.problemOf(doing, on.Account, c, err)
	}
	var o hostabi.Object
	if err := o.UnmarshalJSON(data); err != nil {
		return hostabi.Result{}, fmt.Errorf("%s: the answer is no object: %w", doing, err)
	}
	if m := o.Metadata; m.Namespace != c.namespace || c.name != "" && (m.UID == "" || m.Name != c.name) {
		return hostabi.Result{}, fmt.Errorf("%s: the answer is about another object, or about none", doing)
	}
	return hostabi.Result{Object: &o}, nil
}

func (e *Executor) list(ctx context.Context, on Behalf, list hostabi.ListIntent) (hostabi.Result, error) {
	t := hostabi.Target{APIVersion: list.APIVersion, Kind: list.Kind, Namespace: list.Namespace}
	r, err := e.resource(on, reading, t)
	if err != nil {
		return hostabi.Result{}, err
	}
	limit := hostabi.MaxListLimit
	if list.Limit > 0 {
		limit = min(list.Limit, limit)
	}
	c := callOf(http.MethodGet, r, t)
	c.query = map[string]string{}
	for name, value := range map[string]string{
		"labelSelector": list.LabelSelector, "fieldSelector": list.FieldSelector, "continue": list.Continue,
	} {
		if value != "" {
			c.query[name] = value
		}
	}
	doing := about("list", c, "")
	data, err := e.page(ctx, on, c, limit)
	if err != nil {
		return hostabi.Result{}, e.problemOf(doing, on.Account, c, err)
	}
	page, err := pageOf(data, r)
	if err != nil {
		return hostabi.Result{}, fmt.Errorf("%s: %w", doing, err)
	}
	return hostabi.Result{List: page}, nil
}

// page reads a page of as many objects as fit into an answer. A smaller page is as
// good: its continue leads to the rest.
func (e *Executor) page(ctx context.Context, on Behalf, c call, limit int) ([]byte, error) {
	for {
		c.query["limit"] = strconv.Itoa(limit)
		data, err := e.accounts.do(ctx, on.Account, c)
		if !errors.Is(err, errLarge) || limit == 1 {
			return data, err
		}
		limit = max(1, limit/4)
	}
}

// pageOf reads a list. The API server leaves its own types' names out of the items.
func pageOf(data []byte, r catalog.Resource) (*hostabi.ListResult, error) {
	var list struct {
		Metadata metav1.ListMeta              `json:"metadata"`
		Items    []map[string]json.RawMessage `json:"items"`
	}
	if err := json.Unmarshal(data, &list); err != nil {
		return nil, fmt.Errorf("the answer is no list: %w", err)
	}
	page := &hostabi.ListResult{Items: []hostabi.Object{}, Continue: list.Metadata.Continue}
	for _, item := range list.Items {
		if item == nil {
			return nil, errors.New("the answer has an item that is no object")
		}
		complete(item, map[string]string{"apiVersion": r.Version.GroupVersion().String(), "kind": r.Kind})
		body, err := json.Marshal(item)
		if err != nil {
			return nil, fmt.Errorf("write an item: %w", err)
		}
		var o hostabi.Object
		if err := o.UnmarshalJSON(body); err != nil {
			return nil, err
		}
		page.Items = append(page.Items, o)
	}
	return page, nil
}

func callOf(method string, r catalog.Resource, t hostabi.Target) call {
	return call{method: method, resource: r.Version, namespace: t.Namespace, name: t.Name}
}

// about is what was being done, and to what.
func about(verb string, c call, name string) string {
	return fmt.Sprintf("%s %s %s", verb, c.resource.Resource, types.NamespacedName{Namespace: c.namespace, Name: name})
}

// strict has fields refused that the type does not have: they would be dropped
// without a word.
func strict(on Behalf) map[string]string {
	return map[string]string{"fieldManager": managerOf(on.Name), "fieldValidation": metav1.FieldValidationStrict}
}

// mostManager bounds the name of a field manager, in bytes.
const mostManager = 128

// managerOf is the field manager for what a finalizer writes. A long name ends in a
// hash, since two managers of one name would own each other's fields.
func managerOf(finalizer string) string {
	name := "gleaner/" + finalizer
	if len(name) <= mostManager {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	hash := "-" + hex.EncodeToString(sum[:5])
	return shorten(name, mostManager-len(hash)) + hash
}
