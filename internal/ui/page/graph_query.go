package page

import (
	"cmp"
	"net/url"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/internal/cli/ownership"
)

// GraphQuery is what a person selected on the page Graph. Its zero value selects everything.
type GraphQuery struct {
	Namespace string
	Target    string // Kind/name, as gleaner graph takes it; empty: all objects with owners or dependents
	Kind      string // only this kind, and what owns it
	State     string // only objects in this state, and what owns them
	Labels    string // only objects with these labels, as kubectl -l takes them, and what owns them
	Search    string // only objects whose kind or name contains this text, and their owners
	Depth     int    // as --depth of gleaner graph; 0: any
	Picture   bool   // a picture instead of a tree
	Unfolded  bool   // similar objects one by one

	// Delete is the UID of the object to preview the deletion of. Cascade is the propagation policy.
	Delete  types.UID
	Cascade string
}

// Values returns the query of the page's URL.
func (q GraphQuery) Values() url.Values {
	v := url.Values{}
	for name, value := range map[string]string{
		"namespace": q.Namespace, "target": q.Target, "kind": q.Kind, "state": q.State, "labels": q.Labels, "q": q.Search, "delete": string(q.Delete), "cascade": q.Cascade,
	} {
		if value != "" {
			v.Set(name, value)
		}
	}
	if q.Depth > 0 {
		v.Set("depth", strconv.Itoa(q.Depth))
	}
	if q.Picture {
		v.Set("view", "picture")
	}
	if q.Unfolded {
		v.Set("fold", "no")
	}
	return v
}

// ParseGraphQuery reads what Values wrote. What it can't read selects everything.
func ParseGraphQuery(v url.Values) GraphQuery {
	depth, err := strconv.Atoi(v.Get("depth"))
	if err != nil {
		depth = 0
	}
	return GraphQuery{
		Namespace: v.Get("namespace"), Target: strings.TrimSpace(v.Get("target")), Kind: v.Get("kind"), State: v.Get("state"), Labels: strings.TrimSpace(v.Get("labels")), Search: strings.TrimSpace(v.Get("q")),
		Depth: max(depth, 0), Picture: v.Get("view") == "picture", Unfolded: v.Get("fold") == "no", Delete: types.UID(v.Get("delete")), Cascade: v.Get("cascade"),
	}
}

// Filters reports whether only some objects are selected, which are marked among their owners.
func (q GraphQuery) Filters() bool {
	return q.Kind != "" || q.State != "" || q.Labels != "" || q.Search != ""
}

// URL returns the address of the page with another query.
func (q GraphQuery) URL() string {
	if v := q.Values().Encode(); v != "" {
		return "/graph?" + v
	}
	return "/graph"
}

// Tree returns the address of the tree, AsPicture that of the picture.
func (q GraphQuery) Tree() string { q.Picture = false; return q.URL() }

// AsPicture returns the address of the picture.
func (q GraphQuery) AsPicture() string { q.Picture = true; return q.URL() }

// Toggled returns the address with similar objects folded, or not.
func (q GraphQuery) Toggled() string { q.Unfolded = !q.Unfolded; return q.URL() }

// InState returns the address with another state, or none if it is selected already.
func (q GraphQuery) InState(state string) string {
	if q.State == state {
		state = ""
	}
	q.State = state
	return q.URL()
}

// Around returns the address of the graph around an object.
func (q GraphQuery) Around(o *ownership.Object) string {
	return GraphQuery{Namespace: cmp.Or(o.Namespace, q.Namespace), Target: o.Kind + "/" + o.Name, Picture: q.Picture}.URL()
}

// Deleting returns the address with the preview of a deletion.
func (q GraphQuery) Deleting(o *ownership.Object) string { q.Delete = o.UID; return q.URL() }

// WithCascade returns the address with another propagation policy.
func (q GraphQuery) WithCascade(policy string) string { q.Cascade = policy; return q.URL() }

// WithoutPreview returns the address without a preview.
func (q GraphQuery) WithoutPreview() string { q.Delete, q.Cascade = "", ""; return q.URL() }
