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

// decodeFast decodes a request in one pass over objects and results. It returns false
// if the request has anything that the host does not write.
func decodeFast(data []byte) (hostabi.Request, bool) {
	c := &cursor{data: data}
	var object hostabi.Object
	var results map[string]hostabi.Result
	var others rest
	c.fields(func(name string) {
		switch name {
		case "object":
			object = c.object()
		case "results":
			results = c.results()
		default:
			others.add(name, c.skip())
		}
	})
	if c.failed {
		return hostabi.Request{}, false
	}
	var r hostabi.Request
	c.decode(others.object(), &r)
	r.Object, r.Results = object, results
	return r, !c.failed
}

func (c *cursor) results() map[string]hostabi.Result {
	results := map[string]hostabi.Result{}
	c.fields(func(id string) { results[id] = c.result() })
	return results
}

func (c *cursor) result() hostabi.Result {
	var r hostabi.Result
	c.fields(func(name string) {
		switch name {
		case "object":
			o := c.object()
			r.Object = &o
		case "list":
			r.List = c.list()
		case "http":
			r.HTTP = c.http()
		case "error":
			r.Error = &hostabi.ResultError{}
			c.decode(c.skip(), r.Error)
		default:
			c.skip()
		}
	})
	return r
}

func (c *cursor) list() *hostabi.ListResult {
	list := &hostabi.ListResult{}
	c.fields(func(name string) {
		switch name {
		case "items":
			list.Items = []hostabi.Object{}
			if c.enter('[') {
				for c.more(']') {
					list.Items = append(list.Items, c.object())
				}
			}
		case "continue":
			list.Continue = c.text()
		default:
			c.skip()
		}
	})
	return list
}

func (c *cursor) http() *hostabi.HTTPResult {
	r := &hostabi.HTTPResult{}
	var others rest
	body := ""
	c.fields(func(name string) {
		if name == "body" {
			body = c.text()
			return
		}
		others.add(name, c.skip())
	})
	c.decode(others.object(), r)
	r.Body = body
	return r
}

// object decodes the common fields of an object, and keeps the rest as JSON.
// metadata.managedFields can be larger than everything else.
func (c *cursor) object() hostabi.Object {
	var o hostabi.Object
	c.peek()
	start := c.at
	c.fields(func(name string) {
		switch name {
		case "apiVersion":
			o.APIVersion = c.text()
		case "kind":
			o.Kind = c.text()
		case "metadata":
			var others rest
			c.fields(func(name string) {
				if raw := c.skip(); name != "managedFields" {
					others.add(name, raw)
				}
			})
			c.decode(others.object(), &o.Metadata)
		default:
			c.skip()
		}
	})
	if body := c.data[start:c.at:c.at]; !bytes.Equal(body, []byte("{}")) {
		o.Body = body
	}
	return o
}
