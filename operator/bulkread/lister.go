package bulkread

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"strconv"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

// LiveLister lists from the API server.
type LiveLister struct{ client rest.Interface }

// NewLiveLister returns a Lister with the permissions of config, which it does not modify.
func NewLiveLister(config *rest.Config) (LiveLister, error) {
	config = rest.CopyConfig(config)
	config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	client, err := rest.UnversionedRESTClientFor(config)
	if err != nil {
		return LiveLister{}, fmt.Errorf("create client for lists: %w", err)
	}
	return LiveLister{client}, nil
}

// ErrTooLarge is the error of a page that is too large.
var ErrTooLarge = errors.New("the objects of a page are too large")

// List implements Lister.
func (l LiveLister) List(ctx context.Context, resource schema.GroupVersionResource, namespace, token string, limit, maxBytes int) (Page, error) {
	root := path.Join("/apis", resource.Group, resource.Version)
	if resource.Group == "" {
		root = path.Join("/api", resource.Version)
	}
	request := l.client.Get().AbsPath(root).NamespaceIfScoped(namespace, namespace != "").Resource(resource.Resource).
		SetHeader("Accept", "application/json").Param("limit", strconv.Itoa(limit))
	if token != "" {
		request.Param("continue", token)
	}
	body, err := request.Stream(ctx)
	if err != nil {
		return Page{}, fmt.Errorf("list %s: %w", resource.GroupResource(), err)
	}
	defer body.Close()
	data, err := io.ReadAll(io.LimitReader(body, int64(maxBytes)+1))
	switch {
	case err != nil:
		return Page{}, fmt.Errorf("list %s: %w", resource.GroupResource(), err)
	case len(data) > maxBytes:
		return Page{}, fmt.Errorf("list %s: %w", resource.GroupResource(), ErrTooLarge)
	}
	return parse(data)
}

// parse returns the objects of a list, whose JSON shares the data.
func parse(data []byte) (Page, error) {
	var list struct {
		Metadata struct {
			Continue        string `json:"continue"`
			ResourceVersion string `json:"resourceVersion"`
		} `json:"metadata"`
		Items []json.RawMessage `json:"items"`
	}
	if err := json.Unmarshal(data, &list); err != nil {
		return Page{}, fmt.Errorf("read list: %w", err)
	}
	items := make([]Item, 0, len(list.Items))
	for _, raw := range list.Items {
		var o struct {
			Metadata struct {
				Name            string    `json:"name"`
				UID             types.UID `json:"uid"`
				ResourceVersion string    `json:"resourceVersion"`
			} `json:"metadata"`
		}
		if err := json.Unmarshal(raw, &o); err != nil {
			return Page{}, fmt.Errorf("read list: %w", err)
		}
		items = append(items, Item{Name: o.Metadata.Name, UID: o.Metadata.UID, ResourceVersion: o.Metadata.ResourceVersion, JSON: raw})
	}
	return Page{Items: items, Continue: list.Metadata.Continue, ResourceVersion: list.Metadata.ResourceVersion}, nil
}
