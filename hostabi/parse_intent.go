package hostabi

import (
	"net/url"
	"strings"
)

var (
	intentTypes  = []IntentType{IntentGet, IntentList, IntentCreate, IntentDelete, IntentPatch, IntentHTTP, IntentEvent}
	readTypes    = []IntentType{IntentGet, IntentList}
	propagations = []string{string(PropagationBackground), string(PropagationForeground), string(PropagationOrphan)}
	methods      = []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}

	// connectionHeaders lists the headers of the connection. With them, a request could
	// reach another host, or be split into two.
	connectionHeaders = []string{
		"connection", "content-length", "expect", "host", "keep-alive", "proxy-authorization", "proxy-connection", "te", "trailer",
		"transfer-encoding", "upgrade",
	}
)

func (p *parser) intents(hook Hook, o object) []Intent {
	var list []Intent
	seen := map[string]bool{}
	for i, item := range o.list("intents", MaxIntents) {
		at := o.at.field("intents").item(i)
		intent := p.intent(hook, at, item)
		if seen[intent.ID] {
			p.fail(at.field("id"), "is %s in another intent: write a unique id", quote(intent.ID))
		}
		seen[intent.ID] = true
		list = append(list, intent)
	}
	return list
}

func (p *parser) intent(hook Hook, at *path, v value) Intent {
	o := p.object(at, v, append([]string{"id"}, toStrings(intentTypes)...)...)
	intent := Intent{ID: o.requiredText("id")}
	o.check("id", isID(intent.ID), "write up to 63 letters, digits, '-', '_' and '.'")
	var types []IntentType
	for _, t := range intentTypes {
		if _, ok := o.get(string(t)); ok {
			types = append(types, t)
		}
	}
	if len(types) != 1 {
		p.fail(at, "has %d types: write exactly one of %s", len(types), orList(intentTypes))
		return Intent{}
	}
	t := types[0]
	body, _ := o.get(string(t))
	if at = at.field(string(t)); hook != HookFinalize && !t.ReadOnly() {
		p.fail(at, "is not allowed for %s, which may only read: write %s", hook, orList(readTypes))
		return Intent{}
	}
	p.parseBody(&intent, t, at, body)
	return intent
}

// parseBody sets the field of the intent for its type.
func (p *parser) parseBody(intent *Intent, t IntentType, at *path, v value) {
	switch t {
	case IntentGet:
		intent.Get = p.getIntent(at, v)
	case IntentList:
		intent.List = p.listIntent(at, v)
	case IntentCreate:
		intent.Create = p.createIntent(at, v)
	case IntentDelete:
		intent.Delete = p.deleteIntent(at, v)
	case IntentPatch:
		intent.Patch = p.patchIntent(at, v)
	case IntentHTTP:
		intent.HTTP = p.httpIntent(at, v)
	case IntentEvent:
		intent.Event = p.eventIntent(at, v)
	}
}

var targetFields = []string{"apiVersion", "kind", "namespace", "name"}

// target reads an object that has the fields of a Target, and others.
func (p *parser) target(at *path, v value, others ...string) (object, Target) {
	o := p.object(at, v, append(others, targetFields...)...)
	return o, Target{APIVersion: o.apiVersion(), Kind: o.kindName(), Namespace: o.namespace(), Name: o.objectName()}
}

func (p *parser) getIntent(at *path, v value) *GetIntent {
	_, target := p.target(at, v)
	return &GetIntent{target}
}

func (p *parser) listIntent(at *path, v value) *ListIntent {
	o := p.object(at, v, "apiVersion", "kind", "namespace", "labelSelector", "fieldSelector", "limit", "continue")
	limit, _ := o.integer("limit", 1, MaxListLimit)
	return &ListIntent{
		APIVersion: o.apiVersion(), Kind: o.kindName(), Namespace: o.namespace(),
		LabelSelector: o.text("labelSelector"), FieldSelector: o.text("fieldSelector"),
		Limit: int(limit), Continue: o.text("continue"),
	}
}

func (p *parser) createIntent(at *path, v value) *CreateIntent {
	o := p.object(at, v, "object")
	o.require("object")
	body, ok := o.ofKind("object", kindObject)
	if !ok {
		return nil
	}
	in := object{p, at.field("object"), body.fields()}
	in.apiVersion()
	in.kindName()
	in.require("metadata")
	metadata, ok := in.ofKind("metadata", kindObject)
	if !ok {
		return nil
	}
	meta := object{p, in.at.field("metadata"), metadata.fields()}
	meta.objectName()
	meta.namespace()
	return &CreateIntent{Object: o.raw("object")}
}

func (p *parser) deleteIntent(at *path, v value) *DeleteIntent {
	o, target := p.target(at, v, "uid", "resourceVersion", "propagation", "gracePeriodSeconds")
	if _, ok := o.get("uid"); !ok {
		p.fail(at.field("uid"), "is required: write the uid from the metadata of the object")
	}
	return &DeleteIntent{
		Target: target, UID: o.requiredText("uid"), ResourceVersion: o.text("resourceVersion"),
		Propagation:        Propagation(o.oneOf("propagation", propagations...)),
		GracePeriodSeconds: o.gracePeriod(),
	}
}

func (p *parser) patchIntent(at *path, v value) *PatchIntent {
	o, target := p.target(at, v, "type", "patch")
	t := PatchType(o.requiredOneOf("type", string(PatchMerge), string(PatchJSON), string(PatchApply)))
	o.require("patch")
	want := kindObject
	if t == PatchJSON {
		want = kindArray
	}
	if body, ok := o.get("patch"); ok && body.kind != want {
		p.fail(at.field("patch"), "is %s: write %s, for a patch of type %s", body.kind, want, t)
	}
	return &PatchIntent{Target: target, Type: t, Patch: o.raw("patch")}
}

func (p *parser) httpIntent(at *path, v value) *HTTPIntent {
	o := p.object(at, v, "method", "url", "headers", "body")
	intent := &HTTPIntent{
		Method: o.requiredOneOf("method", methods...), URL: o.requiredText("url"), Headers: p.headers(o), Body: o.text("body"),
	}
	o.check("url", isURL(intent.URL), "write an absolute http or https URL, without user or fragment")
	return intent
}

func (p *parser) headers(o object) map[string]string {
	v, ok := o.ofKind("headers", kindObject)
	if !ok {
		return nil
	}
	fields := v.fields()
	if len(fields) == 0 {
		return nil
	}
	headers, seen := map[string]string{}, map[string]bool{}
	for _, f := range fields {
		at, lower := o.at.field("headers").field(f.name), strings.ToLower(f.name)
		switch {
		case !isToken(f.name):
			p.fail(at, "is not a header name: write letters, digits and '-'")
		case contains(connectionHeaders, lower):
			p.fail(at, "is set by the host: remove it")
		case seen[lower]:
			p.fail(at, "is duplicated: write each header once")
		case f.value.kind != kindString:
			p.fail(at, "is %s: write a string", f.value.kind)
		case hasControl(f.value.text()):
			p.fail(at, "contains a control character: remove it")
		}
		seen[lower] = true
		headers[f.name] = f.value.text()
	}
	return headers
}

func (p *parser) eventIntent(at *path, v value) *EventIntent {
	o := p.object(at, v, "type", "reason", "message")
	e := &EventIntent{
		Type:   EventType(o.requiredOneOf("type", string(EventNormal), string(EventWarning))),
		Reason: o.requiredText("reason"), Message: o.requiredText("message"),
	}
	o.check("reason", isID(e.Reason), "write one word in CamelCase, such as BucketNotEmpty")
	o.checkMaxBytes("message", MaxReasonBytes)
	return e
}

func isURL(s string) bool {
	u, err := url.Parse(s)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Hostname() != "" && u.User == nil &&
		!strings.ContainsAny(s, "# \\")
}
