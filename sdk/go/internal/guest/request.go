package guest

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/gleaner-dev/gleaner/hostabi"
)

// decode decodes a request, as json.Unmarshal does.
func decode(data []byte) (hostabi.Request, error) {
	if r, ok := decodeFast(data); ok {
		return r, nil
	}
	var r hostabi.Request
	if err := json.Unmarshal(data, &r); err != nil {
		return hostabi.Request{}, fmt.Errorf("decode request: %w", err)
	}
	return r, nil
}

// decodeFast decodes a request in one pass and without reflection. It returns false if the
// request has anything that the host does not write. Unknown fields are skipped.
func decodeFast(data []byte) (hostabi.Request, bool) {
	c := &cursor{data: data}
	var r hostabi.Request
	c.fields(func(name string) {
		switch name {
		case "apiVersion":
			r.APIVersion = c.text()
		case "hook":
			r.Hook = hostabi.Hook(c.text())
		case "policy":
			r.Policy = c.policy()
		case "object":
			r.Object = c.object()
		case "owners":
			r.Owners = list(c, c.owner)
		case "dependents":
			r.Dependents = c.dependents()
		case "requestedPropagation":
			r.RequestedPropagation = hostabi.RequestedPropagation(c.text())
		case "ownersAbsentSince":
			r.OwnersAbsentSince = optional(c, c.time)
		case "time":
			r.Time = c.time()
		case "namespaceTerminating":
			r.NamespaceTerminating = c.bool()
		case "serviceAccountMissing":
			r.ServiceAccountMissing = c.bool()
		case "deadline":
			r.Deadline = optional(c, c.time)
		case "attempt":
			r.Attempt = c.int()
		case "round":
			r.Round = c.int()
		case "idempotencyKey":
			r.IdempotencyKey = c.text()
		case "state":
			r.State = c.raw()
		case "results":
			r.Results = values(c, c.result)
		case "withheld":
			r.Withheld = list(c, c.text)
		default:
			c.skip()
		}
	})
	return r, !c.failed
}

func (c *cursor) policy() (p hostabi.Policy) {
	c.fields(func(name string) {
		switch name {
		case "name":
			p.Name = c.text()
		case "namespace":
			p.Namespace = c.text()
		case "settings":
			p.Settings = c.raw()
		default:
			c.skip()
		}
	})
	return p
}

func (c *cursor) owner() (o hostabi.Owner) {
	c.fields(func(name string) {
		switch name {
		case "reference":
			o.Reference = c.reference()
		case "status":
			o.Status = hostabi.OwnerStatus(c.text())
		default:
			c.skip()
		}
	})
	return o
}

func (c *cursor) reference() (r hostabi.Reference) {
	c.fields(func(name string) {
		switch name {
		case "apiVersion":
			r.APIVersion = c.text()
		case "kind":
			r.Kind = c.text()
		case "name":
			r.Name = c.text()
		case "uid":
			r.UID = c.text()
		case "controller":
			r.Controller = optional(c, c.bool)
		case "blockOwnerDeletion":
			r.BlockOwnerDeletion = optional(c, c.bool)
		default:
			c.skip()
		}
	})
	return r
}

func (c *cursor) dependents() (d hostabi.Dependents) {
	c.fields(func(name string) {
		switch name {
		case "count":
			d.Count = c.int()
		case "byKind":
			d.ByKind = list(c, c.kindCount)
		default:
			c.skip()
		}
	})
	return d
}

func (c *cursor) kindCount() (k hostabi.KindCount) {
	c.fields(func(name string) {
		switch name {
		case "group":
			k.Group = c.text()
		case "kind":
			k.Kind = c.text()
		case "count":
			k.Count = c.int()
		default:
			c.skip()
		}
	})
	return k
}

func (c *cursor) result() (r hostabi.Result) {
	c.fields(func(name string) {
		switch name {
		case "object":
			r.Object = optional(c, c.object)
		case "list":
			r.List = optional(c, c.page)
		case "http":
			r.HTTP = optional(c, c.http)
		case "error":
			r.Error = optional(c, c.resultError)
		default:
			c.skip()
		}
	})
	return r
}

func (c *cursor) page() (p hostabi.ListResult) {
	c.fields(func(name string) {
		switch name {
		case "items":
			p.Items = list(c, c.object)
		case "continue":
			p.Continue = c.text()
		default:
			c.skip()
		}
	})
	return p
}

func (c *cursor) http() (r hostabi.HTTPResult) {
	c.fields(func(name string) {
		switch name {
		case "status":
			r.Status = c.int()
		case "headers":
			r.Headers = values(c, c.text)
		case "body":
			r.Body = c.text()
		case "bodyBase64":
			r.BodyBase64 = c.base64()
		case "truncated":
			r.Truncated = c.bool()
		default:
			c.skip()
		}
	})
	return r
}

func (c *cursor) resultError() (e hostabi.ResultError) {
	c.fields(func(name string) {
		switch name {
		case "reason":
			e.Reason = hostabi.ErrorReason(c.text())
		case "message":
			e.Message = c.text()
		default:
			c.skip()
		}
	})
	return e
}

// object decodes the common fields of an object, and keeps the rest as JSON.
func (c *cursor) object() (o hostabi.Object) {
	c.peek()
	start := c.at
	c.fields(func(name string) {
		switch name {
		case "apiVersion":
			o.APIVersion = c.text()
		case "kind":
			o.Kind = c.text()
		case "metadata":
			o.Metadata = c.metadata()
		default:
			c.skip()
		}
	})
	if body := c.data[start:c.at:c.at]; !bytes.Equal(body, []byte("{}")) {
		o.Body = body
	}
	return o
}

func (c *cursor) metadata() (m hostabi.Metadata) {
	c.fields(func(name string) {
		switch name {
		case "name":
			m.Name = c.text()
		case "namespace":
			m.Namespace = c.text()
		case "uid":
			m.UID = c.text()
		case "resourceVersion":
			m.ResourceVersion = c.text()
		case "generation":
			m.Generation = c.int64()
		case "creationTimestamp":
			m.CreationTimestamp = optional(c, c.time)
		case "deletionTimestamp":
			m.DeletionTimestamp = optional(c, c.time)
		case "labels":
			m.Labels = values(c, c.text)
		case "annotations":
			m.Annotations = values(c, c.text)
		case "ownerReferences":
			m.OwnerReferences = list(c, c.reference)
		case "finalizers":
			m.Finalizers = list(c, c.text)
		default:
			c.skip() // managedFields can be larger than everything else
		}
	})
	return m
}
