package guest

import (
	"bytes"
	"errors"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/sdk/go/internal/jsonread"
)

// decoder reads the types of package hostabi.
type decoder struct{ *jsonread.Reader }

// errRequest reports a request that is not one.
var errRequest = errors.New("decode request: it is not a JSON object with the fields of a request")

// decode decodes a request, as json.Unmarshal does. Unknown fields are skipped. The
// request refers to data.
func decode(data []byte) (hostabi.Request, error) {
	c := decoder{jsonread.New(data)}
	var r hostabi.Request
	c.Fields(func(name string) {
		switch name {
		case "apiVersion":
			r.APIVersion = c.Text()
		case "hook":
			r.Hook = hostabi.Hook(c.Text())
		case "policy":
			r.Policy = c.policy()
		case "object":
			r.Object = c.object()
		case "owners":
			r.Owners = jsonread.List(c.Reader, c.owner)
		case "dependents":
			r.Dependents = c.dependents()
		case "requestedPropagation":
			r.RequestedPropagation = hostabi.RequestedPropagation(c.Text())
		case "userInfo":
			r.UserInfo = jsonread.Optional(c.Reader, c.userInfo)
		case "retention":
			r.Retention = jsonread.Optional(c.Reader, c.retention)
		case "image":
			r.Image = jsonread.Optional(c.Reader, c.image)
		case "ownersAbsentSince":
			r.OwnersAbsentSince = jsonread.Optional(c.Reader, c.Time)
		case "time":
			r.Time = c.Time()
		case "namespaceTerminating":
			r.NamespaceTerminating = c.Bool()
		case "serviceAccountMissing":
			r.ServiceAccountMissing = c.Bool()
		case "deadline":
			r.Deadline = jsonread.Optional(c.Reader, c.Time)
		case "attempt":
			r.Attempt = c.Int()
		case "round":
			r.Round = c.Int()
		case "idempotencyKey":
			r.IdempotencyKey = c.Text()
		case "state":
			r.State = c.Raw()
		case "results":
			r.Results = jsonread.Map(c.Reader, c.result)
		case "withheld":
			r.Withheld = jsonread.List(c.Reader, c.Text)
		default:
			c.Skip()
		}
	})
	if c.Failed {
		return hostabi.Request{}, errRequest
	}
	return r, nil
}

// DecodeObject decodes an object, or returns the zero Object if it is none.
func DecodeObject(data []byte) hostabi.Object {
	c := decoder{jsonread.New(data)}
	if o := c.object(); !c.Failed {
		return o
	}
	return hostabi.Object{}
}

func (c decoder) userInfo() (u hostabi.UserInfo) {
	c.Fields(func(name string) {
		switch name {
		case "username":
			u.Username = c.Text()
		case "groups":
			u.Groups = jsonread.List(c.Reader, c.Text)
		default:
			c.Skip()
		}
	})
	return u
}

func (c decoder) retention() (r hostabi.Retention) {
	c.Fields(func(name string) {
		switch name {
		case "policy":
			r.Policy = c.Text()
		case "namespace":
			r.Namespace = c.Text()
		case "limit":
			r.Limit = c.Text()
		default:
			c.Skip()
		}
	})
	return r
}

func (c decoder) image() (i hostabi.Image) {
	c.Fields(func(name string) {
		switch name {
		case "id":
			i.ID = c.Text()
		case "names":
			i.Names = jsonread.List(c.Reader, c.Text)
		case "labels":
			i.Labels = jsonread.Map(c.Reader, c.Text)
		case "sizeBytes":
			i.SizeBytes = c.Int64()
		case "firstSeen":
			i.FirstSeen = c.Time()
		case "lastUsed":
			i.LastUsed = jsonread.Optional(c.Reader, c.Time)
		case "workloads":
			i.Workloads = jsonread.List(c.Reader, c.workload)
		default:
			c.Skip()
		}
	})
	return i
}

func (c decoder) workload() (w hostabi.Workload) {
	c.Fields(func(name string) {
		switch name {
		case "apiVersion":
			w.APIVersion = c.Text()
		case "kind":
			w.Kind = c.Text()
		case "namespace":
			w.Namespace = c.Text()
		case "name":
			w.Name = c.Text()
		default:
			c.Skip()
		}
	})
	return w
}

func (c decoder) policy() (p hostabi.Policy) {
	c.Fields(func(name string) {
		switch name {
		case "name":
			p.Name = c.Text()
		case "namespace":
			p.Namespace = c.Text()
		case "settings":
			p.Settings = c.Raw()
		default:
			c.Skip()
		}
	})
	return p
}

func (c decoder) owner() (o hostabi.Owner) {
	c.Fields(func(name string) {
		switch name {
		case "reference":
			o.Reference = c.reference()
		case "status":
			o.Status = hostabi.OwnerStatus(c.Text())
		default:
			c.Skip()
		}
	})
	return o
}

func (c decoder) reference() (r hostabi.Reference) {
	c.Fields(func(name string) {
		switch name {
		case "apiVersion":
			r.APIVersion = c.Text()
		case "kind":
			r.Kind = c.Text()
		case "name":
			r.Name = c.Text()
		case "uid":
			r.UID = c.Text()
		case "controller":
			r.Controller = jsonread.Optional(c.Reader, c.Bool)
		case "blockOwnerDeletion":
			r.BlockOwnerDeletion = jsonread.Optional(c.Reader, c.Bool)
		default:
			c.Skip()
		}
	})
	return r
}

func (c decoder) dependents() (d hostabi.Dependents) {
	c.Fields(func(name string) {
		switch name {
		case "count":
			d.Count = c.Int()
		case "byKind":
			d.ByKind = jsonread.List(c.Reader, c.kindCount)
		default:
			c.Skip()
		}
	})
	return d
}

func (c decoder) kindCount() (k hostabi.KindCount) {
	c.Fields(func(name string) {
		switch name {
		case "group":
			k.Group = c.Text()
		case "kind":
			k.Kind = c.Text()
		case "count":
			k.Count = c.Int()
		default:
			c.Skip()
		}
	})
	return k
}

func (c decoder) result() (r hostabi.Result) {
	c.Fields(func(name string) {
		switch name {
		case "object":
			r.Object = jsonread.Optional(c.Reader, c.object)
		case "list":
			r.List = jsonread.Optional(c.Reader, c.page)
		case "http":
			r.HTTP = jsonread.Optional(c.Reader, c.http)
		case "error":
			r.Error = jsonread.Optional(c.Reader, c.resultError)
		default:
			c.Skip()
		}
	})
	return r
}

func (c decoder) page() (p hostabi.ListResult) {
	c.Fields(func(name string) {
		switch name {
		case "items":
			p.Items = jsonread.List(c.Reader, c.object)
		case "continue":
			p.Continue = c.Text()
		default:
			c.Skip()
		}
	})
	return p
}

func (c decoder) http() (r hostabi.HTTPResult) {
	c.Fields(func(name string) {
		switch name {
		case "status":
			r.Status = c.Int()
		case "headers":
			r.Headers = jsonread.Map(c.Reader, c.Text)
		case "body":
			r.Body = c.Text()
		case "bodyBase64":
			r.BodyBase64 = c.Base64()
		case "truncated":
			r.Truncated = c.Bool()
		default:
			c.Skip()
		}
	})
	return r
}

func (c decoder) resultError() (e hostabi.ResultError) {
	c.Fields(func(name string) {
		switch name {
		case "reason":
			e.Reason = hostabi.ErrorReason(c.Text())
		case "message":
			e.Message = c.Text()
		default:
			c.Skip()
		}
	})
	return e
}

// object decodes the common fields of an object, and keeps the rest as JSON.
func (c decoder) object() (o hostabi.Object) {
	start := c.Position()
	c.Fields(func(name string) {
		switch name {
		case "apiVersion":
			o.APIVersion = c.Text()
		case "kind":
			o.Kind = c.Text()
		case "metadata":
			o.Metadata = c.metadata()
		default:
			c.Skip()
		}
	})
	if body := c.Since(start); !bytes.Equal(body, []byte("{}")) && !bytes.Equal(body, []byte("null")) {
		o.Body = body
	}
	return o
}

func (c decoder) metadata() (m hostabi.Metadata) {
	c.Fields(func(name string) {
		switch name {
		case "name":
			m.Name = c.Text()
		case "namespace":
			m.Namespace = c.Text()
		case "uid":
			m.UID = c.Text()
		case "resourceVersion":
			m.ResourceVersion = c.Text()
		case "generation":
			m.Generation = c.Int64()
		case "creationTimestamp":
			m.CreationTimestamp = jsonread.Optional(c.Reader, c.Time)
		case "deletionTimestamp":
			m.DeletionTimestamp = jsonread.Optional(c.Reader, c.Time)
		case "labels":
			m.Labels = jsonread.Map(c.Reader, c.Text)
		case "annotations":
			m.Annotations = jsonread.Map(c.Reader, c.Text)
		case "ownerReferences":
			m.OwnerReferences = jsonread.List(c.Reader, c.reference)
		case "finalizers":
			m.Finalizers = jsonread.List(c.Reader, c.Text)
		default:
			c.Skip() // managedFields can be larger than everything else
		}
	})
	return m
}
