// Package stuck finds what has been terminating for too long, and groups it by
// what holds it, so that one cause is told once.
//
// It reads a survey of a cluster and the objects that it finds, and writes
// nothing. Types that could not be read are told.
package stuck

import (
	"cmp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gleaner-dev/gleaner/cmd/gleaner/ask/whose"
	"github.com/gleaner-dev/gleaner/operator/record"
)

// Report is what was found.
type Report struct {
	LongerThan metav1.Duration `json:"longerThan"`
	Namespace  string          `json:"namespace,omitempty"` // none: all, and what is in none
	At         metav1.Time     `json:"at"`

	Objects int     `json:"objects"` // that are stuck, each counted once
	Early   int     `json:"early"`   // of them those that have not been terminating for that long, and whose finalizers can't go on
	Groups  []Group `json:"groups"`  // those that hold most first

	// TooManyOwners are objects that are not being deleted, and have more owner references
	// than the collector reads at once, of which some were not found. It collects them only
	// slowly, or not at all. Those with the most owners come first.
	TooManyOwners []Crowded `json:"tooManyOwners,omitempty"`

	// Unknown is what could not be read, and may be stuck as well.
	Unknown []string `json:"unknown,omitempty"`
}

// Group is objects that the same holds.
type Group struct {
	Holder  string      `json:"holder"` // the finalizer, or what else it waits for
	Kind    whose.Kind  `json:"kind"`
	Owner   string      `json:"owner"`
	Waits   string      `json:"waits,omitempty"`
	Do      string      `json:"do"`
	Since   metav1.Time `json:"since"` // of the first of them
	Count   int         `json:"count"`
	Objects []Object    `json:"objects"` // the longest first
}

// Crowded is an object with too many owners.
type Crowded struct {
	record.Object `json:",inline"`
	Resource      string      `json:"resource"`
	Created       metav1.Time `json:"created"`
	Owners        int         `json:"owners"`   // owner references
	NotFound      int         `json:"notFound"` // of them those to owners that are not there, or not where they should be
}

// Object is one that is stuck.
type Object struct {
	record.Object `json:",inline"`
	Resource      string           `json:"resource"` // as in pods or deployments.apps
	Since         metav1.Time      `json:"since"`    // its deletionTimestamp
	Finalizers    []string         `json:"finalizers,omitempty"`
	Holder        *whose.Holder    `json:"by,omitempty"` // the finalizer of the group
	Conditions    []string         `json:"conditions,omitempty"`
	WaitsFor      []record.Blocker `json:"waitsFor,omitempty"`
	Blocking      int              `json:"blocking,omitempty"`
}

// Without a finalizer an object waits for one of these.
const (
	Contents whose.Kind = "Contents" // a namespace: what is in it
	Kubelet  whose.Kind = "Kubelet"  // a pod: its node
	Nobody   whose.Kind = "Nobody"   // anything else
)

// Found is an object that is stuck, as it was read.
type Found struct {
	whose.Object
	Resource  string
	Namespace *corev1.Namespace // if it is one
	Node      string            // if it is a pod
	WaitsFor  []record.Blocker
	Blocking  int
}

// Of groups what was found.
func Of(found []Found, book *whose.Book) []Group {
	byHolder := map[string]*Group{}
	for _, f := range found {
		for _, h := range holders(f, book) {
			key := h.Finalizer
			if h.Kind == whose.Hold {
				key += " " + h.Owner
			}
			g := byHolder[key]
			if g == nil {
				g = &Group{Holder: h.Finalizer, Kind: h.Kind, Owner: h.Owner, Waits: h.Waits, Do: h.Do}
				byHolder[key] = g
			}
			g.Objects = append(g.Objects, objectOf(f, h))
			if g.Do != h.Do {
				g.Do = common(g, h)
			}
			g.Owner = owners(g.Owner, h)
		}
	}
	groups := []Group{}
	for _, g := range byHolder {
		slices.SortFunc(g.Objects, func(a, b Object) int {
			return cmp.Or(a.Since.Compare(b.Since.Time), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
		})
		g.Count, g.Since = len(g.Objects), g.Objects[0].Since
		groups = append(groups, *g)
	}
	slices.SortFunc(groups, func(a, b Group) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Holder, b.Holder), cmp.Compare(a.Owner, b.Owner))
	})
	return groups
}

// owners names who put the finalizer on the objects of a group, if they are several.
func owners(known string, h whose.Holder) string {
	switch {
	case h.Kind != whose.Stranger || h.Owner == whose.Unnamed || slices.Contains(strings.Split(known, ", "), h.Owner):
		return known
	case known == whose.Unnamed:
		return h.Owner
	default:
		return known + ", " + h.Owner
	}
}

// common is what to do about all objects of a group, which differ in what to do about
// each.
func common(g *Group, h whose.Holder) string {
	switch g.Kind {
	case whose.Hold:
		return "gleaner explain KIND/NAME says what the policy waits for; to let all go undecided: gleaner release --all"
	case whose.Stranger:
		return "see that the controller that serves it runs, and its log; if it is gone for good: gleaner release --all --finalizer " + h.Finalizer
	case whose.Served:
		return "see kubectl describe of it, or gleaner explain KIND/NAME of the objects"
	default:
		return g.Do
	}
}

func objectOf(f Found, h whose.Holder) Object {
	apiVersion, kind := f.Kind.ToAPIVersionAndKind()
	o := Object{
		Object: record.Object{
			APIVersion: apiVersion, Kind: kind, Namespace: f.GetNamespace(), Name: f.GetName(), UID: f.GetUID(), ResourceVersion: f.GetResourceVersion(),
		},
		Resource: f.Resource, Since: *f.GetDeletionTimestamp(), Finalizers: f.GetFinalizers(), WaitsFor: f.WaitsFor, Blocking: f.Blocking,
	}
	if len(f.GetFinalizers()) != 0 {
		o.Holder = &h
	}
	if f.Namespace != nil {
		o.Conditions = left(f.Namespace)
	}
	return o
}

// holders is who holds an object.
func holders(f Found, book *whose.Book) []whose.Holder {
	all := book.All(f.Object)
	if len(all) != 0 && f.Namespace == nil {
		return all
	}
	if f.Namespace != nil {
		return append(all, contents(f.Namespace)...)
	}
	if f.Kind.Kind == "Pod" && f.Kind.Group == "" {
		h := whose.Holder{Finalizer: "(no finalizer)", Kind: Kubelet, Owner: "the kubelet of node " + f.Node, Waits: "its containers to end"}
		h.Do = "see whether the node is there and ready; if it is gone for good: kubectl delete pod --force, which leaves containers to themselves"
		if f.Node == "" {
			h.Owner, h.Waits, h.Do = "the API server", "nothing that is known", "delete it again: kubectl delete pod"
		}
		return []whose.Holder{h}
	}
	return []whose.Holder{{
		Finalizer: "(no finalizer)", Kind: Nobody, Owner: "the API server", Waits: "its grace period to pass, or whoever is to delete it a second time",
		Do: "delete it again",
	}}
}

// telling are the conditions of namespaces that say why they stay.
var telling = map[corev1.NamespaceConditionType]string{
	corev1.NamespaceDeletionDiscoveryFailure: "types could not be discovered: see kubectl get apiservices for one that is not Available",
	corev1.NamespaceDeletionGVParsingFailure: "types could not be read: see kubectl get apiservices",
	corev1.NamespaceDeletionContentFailure:   "what is in it could not be deleted: see the message, and the rights and webhooks that it names",
	corev1.NamespaceContentRemaining:         "objects are left in it: gleaner stuck -n, of this namespace, says what holds them",
	corev1.NamespaceFinalizersRemaining:      "finalizers hold objects in it: gleaner stuck -n, of this namespace, says whose they are",
}

// contents says what a namespace waits for, by its conditions: one holder for each.
func contents(n *corev1.Namespace) []whose.Holder {
	var holders []whose.Holder
	for _, c := range n.Status.Conditions {
		do, ok := telling[c.Type]
		if !ok || c.Status != corev1.ConditionTrue {
			continue
		}
		holders = append(holders, whose.Holder{Finalizer: "(namespace) " + string(c.Type), Kind: Contents, Owner: "the namespace controller", Waits: c.Message, Do: do})
	}
	if len(holders) == 0 && len(n.Spec.Finalizers) != 0 {
		holders = append(holders, whose.Holder{
			Finalizer: "(namespace) " + string(n.Spec.Finalizers[0]), Kind: Contents, Owner: "the namespace controller",
			Waits: "it to look at what is in the namespace", Do: "see that kube-controller-manager runs",
		})
	}
	return holders
}

// left are the conditions that say what is left in a namespace.
func left(n *corev1.Namespace) []string {
	var list []string
	for _, c := range n.Status.Conditions {
		if _, ok := telling[c.Type]; ok && c.Status == corev1.ConditionTrue {
			list = append(list, string(c.Type)+": "+c.Message)
		}
	}
	return list
}

// longer reports whether an object has been terminating for longer than a time. Its
// deletionTimestamp has the grace period in it already.
func longer(deleted *metav1.Time, than time.Duration, now time.Time) bool {
	return deleted != nil && now.Sub(deleted.Time) > than
}
