package completion

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/operator/graph"
)

// Root is the object whose deletion began a cascade.
type Root struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"`
	Namespace  string    `json:"namespace,omitempty"`
	Name       string    `json:"name"`
	UID        types.UID `json:"uid"`
}

// String returns the kind and the name.
func (r Root) String() string {
	if r.Namespace == "" {
		return r.Kind + " " + r.Name
	}
	return r.Kind + " " + r.Namespace + "/" + r.Name
}

// Cascade is the progress of a cascade.
type Cascade struct {
	Root    Root      `json:"root"`
	Began   time.Time `json:"began"`   // when the deletion of the root was observed
	Changed time.Time `json:"changed"` // when the last object was deleted or released
	Deleted int       `json:"deleted"` // number of deleted objects, without the root
	Kept    int       `json:"kept"`    // number of dependents that were released from an owner in it and exist
	Stalled bool      `json:"stalled,omitempty"`

	// Owners are the objects in the cascade that are being deleted or are gone and still have dependents.
	Owners []types.UID `json:"owners,omitempty"`
}

func rootOf(o graph.Object) Root {
	apiVersion, kind := o.Kind.ToAPIVersionAndKind()
	return Root{APIVersion: apiVersion, Kind: kind, Namespace: o.Namespace, Name: o.Name, UID: o.UID}
}

func sorted(all []Cascade) []Cascade {
	slices.SortFunc(all, func(a, b Cascade) int { return cmp.Or(a.Began.Compare(b.Began), cmp.Compare(a.Root.UID, b.Root.UID)) })
	return all
}
