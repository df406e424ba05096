package hostabi

import (
	"encoding/json"
	"errors"
	"fmt"
)

// MarshalRequest encodes a request for a module. Every list and map is present,
// even if empty, so that a policy need not check for it.
func MarshalRequest(r Request) ([]byte, error) {
	r.APIVersion = Version
	if len(r.Policy.Settings) == 0 {
		r.Policy.Settings = json.RawMessage("{}")
	}
	e := encoder{b: make([]byte, 0, 1024+len(r.Object.Body))}
	e.request(r)
	switch {
	case e.err != nil:
		return nil, fmt.Errorf("encode request: %w", e.err)
	case len(e.b) > MaxRequestBytes:
		return nil, fmt.Errorf("encode request: %d bytes exceed the limit of %d", len(e.b), MaxRequestBytes)
	}
	return e.b, nil
}

// MarshalVerdict encodes a verdict so that ParseVerdict can parse it. It does not
// validate the verdict.
func MarshalVerdict(v Verdict) ([]byte, error) {
	var e encoder
	e.fail(checkDocuments(v))
	e.verdict(v)
	if e.err != nil {
		return nil, errors.New("encode verdict: " + e.err.Error()) // package fmt would be a sixth of a small module
	}
	return e.b, nil
}

// checkDocuments checks that the documents in a verdict are valid JSON, and says which is not.
func checkDocuments(v Verdict) error {
	if len(v.State) != 0 && !json.Valid(v.State) {
		return errors.New("state is not JSON")
	}
	for _, i := range v.Intents {
		if i.Create != nil && !json.Valid(i.Create.Object) {
			return errors.New("the object of intent " + quote(i.ID) + " is not JSON")
		}
		if i.Patch != nil && !json.Valid(i.Patch.Patch) {
			return errors.New("the patch of intent " + quote(i.ID) + " is not JSON")
		}
	}
	return nil
}

func (e *encoder) request(r Request) {
	e.open()
	e.text("apiVersion", r.APIVersion)
	e.text("hook", string(r.Hook))
	e.name("policy")
	e.open()
	e.text("name", r.Policy.Name)
	e.optionalText("namespace", r.Policy.Namespace)
	e.optionalDocument("settings", r.Policy.Settings)
	e.close()
	e.name("object")
	e.object(r.Object)
	e.name("owners")
	e.openList()
	for _, o := range r.Owners {
		e.next()
		e.open()
		e.name("reference")
		e.reference(o.Reference)
		e.text("status", string(o.Status))
		e.close()
	}
	e.closeList()
	e.name("dependents")
	e.dependents(r.Dependents)
	e.optionalText("requestedPropagation", string(r.RequestedPropagation))
	e.ofHook(r)
	e.optionalTime("ownersAbsentSince", r.OwnersAbsentSince)
	e.time("time", r.Time)
	e.bool("namespaceTerminating", r.NamespaceTerminating)
	if r.ServiceAccountMissing {
		e.bool("serviceAccountMissing", true)
	}
	e.optionalTime("deadline", r.Deadline)
	e.int("attempt", int64(r.Attempt))
	e.int("round", int64(r.Round))
	e.optionalText("idempotencyKey", r.IdempotencyKey)
	e.optionalDocument("state", r.State)
	e.name("results")
	e.open()
	for _, id := range sortedKeys(r.Results) {
		e.next()
		e.string(id)
		e.b = append(e.b, ':')
		e.result(r.Results[id])
	}
	e.close()
	e.texts("withheld", r.Withheld)
	e.close()
}

// ofHook writes what requests of one hook only have.
func (e *encoder) ofHook(r Request) {
	if r.UserInfo != nil {
		e.name("userInfo")
		e.open()
		e.text("username", r.UserInfo.Username)
		e.texts("groups", r.UserInfo.Groups)
		e.close()
	}
	if r.Retention != nil {
		e.name("retention")
		e.open()
		e.text("policy", r.Retention.Policy)
		e.optionalText("namespace", r.Retention.Namespace)
		e.text("limit", r.Retention.Limit)
		e.close()
	}
	if r.Image != nil {
		e.name("image")
		e.image(*r.Image)
	}
}

func (e *encoder) object(o Object) {
	switch {
	case len(o.Body) != 0:
		e.json(o.Body)
	case o.isZero():
		e.b = append(e.b, "{}"...)
	default:
		e.open()
		e.text("apiVersion", o.APIVersion)
		e.text("kind", o.Kind)
		e.name("metadata")
		e.metadata(o.Metadata)
		e.close()
	}
}

func (e *encoder) metadata(m Metadata) {
	e.open()
	e.text("name", m.Name)
	e.optionalText("namespace", m.Namespace)
	e.text("uid", m.UID)
	e.text("resourceVersion", m.ResourceVersion)
	if m.Generation != 0 {
		e.int("generation", m.Generation)
	}
	e.optionalTime("creationTimestamp", m.CreationTimestamp)
	e.optionalTime("deletionTimestamp", m.DeletionTimestamp)
	e.optionalMap("labels", m.Labels)
	e.optionalMap("annotations", m.Annotations)
	if len(m.OwnerReferences) != 0 {
		e.name("ownerReferences")
		e.openList()
		for _, r := range m.OwnerReferences {
			e.next()
			e.reference(r)
		}
		e.closeList()
	}
	e.optionalTexts("finalizers", m.Finalizers)
	e.close()
}

func (e *encoder) reference(r Reference) {
	e.open()
	e.text("apiVersion", r.APIVersion)
	e.text("kind", r.Kind)
	e.text("name", r.Name)
	e.text("uid", r.UID)
	e.optionalBool("controller", r.Controller)
	e.optionalBool("blockOwnerDeletion", r.BlockOwnerDeletion)
	e.close()
}

func (e *encoder) image(i Image) {
	e.open()
	e.text("id", i.ID)
	e.texts("names", i.Names)
	e.optionalMap("labels", i.Labels)
	e.int("sizeBytes", i.SizeBytes)
	e.time("firstSeen", i.FirstSeen)
	e.optionalTime("lastUsed", i.LastUsed)
	e.name("workloads")
	e.openList()
	for _, w := range i.Workloads {
		e.next()
		e.open()
		e.text("apiVersion", w.APIVersion)
		e.text("kind", w.Kind)
		e.text("namespace", w.Namespace)
		e.text("name", w.Name)
		e.close()
	}
	e.closeList()
	e.close()
}

func (e *encoder) dependents(d Dependents) {
	e.open()
	e.int("count", int64(d.Count))
	e.name("byKind")
	e.openList()
	for _, k := range d.ByKind {
		e.next()
		e.open()
		e.text("group", k.Group)
		e.text("kind", k.Kind)
		e.int("count", int64(k.Count))
		e.close()
	}
	e.closeList()
	e.close()
}

func (e *encoder) result(r Result) {
	e.open()
	if r.Object != nil {
		e.name("object")
		e.object(*r.Object)
	}
	if r.List != nil {
		e.name("list")
		e.list(*r.List)
	}
	if r.HTTP != nil {
		e.name("http")
		e.open()
		e.int("status", int64(r.HTTP.Status))
		e.optionalMap("headers", r.HTTP.Headers)
		e.optionalText("body", r.HTTP.Body)
		e.optionalBase64("bodyBase64", r.HTTP.BodyBase64)
		if r.HTTP.Truncated {
			e.bool("truncated", true)
		}
		e.close()
	}
	if r.Error != nil {
		e.name("error")
		e.open()
		e.text("reason", string(r.Error.Reason))
		e.text("message", r.Error.Message)
		e.close()
	}
	e.close()
}

func (e *encoder) list(l ListResult) {
	e.open()
	e.name("items")
	e.openList()
	for _, o := range l.Items {
		e.next()
		e.object(o)
	}
	e.closeList()
	e.optionalText("continue", l.Continue)
	e.close()
}

func (e *encoder) verdict(v Verdict) {
	e.open()
	e.text("decision", string(v.Decision))
	e.optionalText("propagation", string(v.Propagation))
	e.optionalSeconds(v.GracePeriodSeconds)
	if v.InheritGracePeriod {
		e.bool("inheritGracePeriod", true)
	}
	e.optionalDuration("delay", v.Delay)
	e.optionalDuration("after", v.After)
	if len(v.Dependents) != 0 {
		e.name("dependents")
		e.openList()
		for _, d := range v.Dependents {
			e.next()
			e.open()
			e.optionalText("group", d.Group)
			e.text("kind", d.Kind)
			e.text("decision", string(d.Decision))
			e.close()
		}
		e.closeList()
	}
	e.order(v.Order)
	if len(v.Intents) != 0 {
		e.name("intents")
		e.openList()
		for _, i := range v.Intents {
			e.next()
			e.intent(i)
		}
		e.closeList()
	}
	e.optionalDocument("state", v.State)
	e.optionalText("reason", v.Reason)
	e.close()
}

func (e *encoder) order(order []Wave) {
	if len(order) == 0 {
		return
	}
	e.name("order")
	e.openList()
	for _, wave := range order {
		e.next()
		e.openList()
		for _, kind := range wave {
			e.next()
			e.open()
			e.optionalText("group", kind.Group)
			e.text("kind", kind.Kind)
			e.close()
		}
		e.closeList()
	}
	e.closeList()
}

func (e *encoder) optionalSeconds(seconds *int64) {
	if seconds != nil {
		e.int("gracePeriodSeconds", *seconds)
	}
}

func (e *encoder) optionalDuration(name string, d Duration) {
	if d != 0 {
		e.text(name, d.String())
	}
}
