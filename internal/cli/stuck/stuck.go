// Package stuck finds objects that have been terminating for too long, and groups them by
// what blocks them, so that each cause is reported once.
//
// It reads a survey of a cluster and the stuck objects, and writes nothing. Types that could
// not be read are reported.
package stuck

import (
	"cmp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gleaner-dev/gleaner/internal/cli/finalizers"
	"github.com/gleaner-dev/gleaner/operator/record"
)

// Report is the output document of gleaner stuck.
type Report struct {
	LongerThan metav1.Duration `json:"longerThan"`
	Namespace  string          `json:"namespace,omitempty"` // none: all, and cluster-scoped objects
	At         metav1.Time     `json:"at"`

	Objects       int     `json:"objects"` // stuck objects, each counted once
	ReportedStuck int     `json:"early"`   // of these, objects that are reported as stuck by a finalizer before LongerThan
	Groups        []Group `json:"groups"`  // sorted by the number of objects, descending

	// Paused are the pauses in force: what they cover is not released.
	Paused []string `json:"paused,omitempty"`

	// TooManyOwners are objects that are not being deleted, with more owner references than the
	// garbage collector reads at once, some of which were not found. They are collected slowly
	// or not at all. They are sorted by the number of owners, descending.
	TooManyOwners []ManyOwners `json:"tooManyOwners,omitempty"`

	// Unknown lists the types and objects that could not be read, and may also be stuck.
	Unknown []string `json:"unknown,omitempty"`
}

// Group is a group of objects that are blocked by the same finalizer.
type Group struct {
	Finalizer string          `json:"holder"` // the finalizer, or another cause
	Kind      finalizers.Kind `json:"kind"`
	Owner     string          `json:"owner"`
	WaitsFor  string          `json:"waits,omitempty"`
	Advice    string          `json:"do"`
	Since     metav1.Time     `json:"since"` // of the oldest object
	Count     int             `json:"count"`
	Objects   []Object        `json:"objects"` // the oldest first
}

// ManyOwners is an object with too many owners.
type ManyOwners struct {
	record.Object `json:",inline"`
	Resource      string      `json:"resource"`
	Created       metav1.Time `json:"created"`
	Owners        int         `json:"owners"`   // owner references
	NotFound      int         `json:"notFound"` // of these, owners that do not exist or do not match the reference
}

// Object is a stuck object.
type Object struct {
	record.Object `json:",inline"`
	Resource      string                `json:"resource"` // such as pods or deployments.apps
	Since         metav1.Time           `json:"since"`    // its deletionTimestamp
	Finalizers    []string              `json:"finalizers,omitempty"`
	Finalizer     *finalizers.Finalizer `json:"by,omitempty"` // the finalizer of the group
	Conditions    []string              `json:"conditions,omitempty"`
	WaitsFor      []record.Blocker      `json:"waitsFor,omitempty"`
	Blocking      int                   `json:"blocking,omitempty"`
}

// Kinds of causes other than finalizers.
const (
	Contents finalizers.Kind = "Contents" // a namespace: its content
	Kubelet  finalizers.Kind = "Kubelet"  // a pod: its node
	None     finalizers.Kind = "None"     // anything else
)

// Item is a stuck object as it was read.
type Item struct {
	finalizers.Object
	Resource  string
	Namespace *corev1.Namespace // if it is one
	Node      string            // if it is a pod
	WaitsFor  []record.Blocker
	Blocking  int
}

// GroupByFinalizer groups stuck objects.
func GroupByFinalizer(found []Item, book *finalizers.Resources) []Group {
	byHolder := map[string]*Group{}
	for _, f := range found {
		for _, h := range finalizersOf(f, book) {
			key := h.Name
			if h.Kind == finalizers.Hold {
				key += " " + h.Owner
			}
			g := byHolder[key]
			if g == nil {
				g = &Group{Finalizer: h.Name, Kind: h.Kind, Owner: h.Owner, WaitsFor: h.WaitsFor, Advice: h.Advice}
				byHolder[key] = g
			}
			g.Objects = append(g.Objects, objectOf(f, h))
			if g.Advice != h.Advice {
				g.Advice = commonAdvice(g, h)
			}
			g.Owner = addOwner(g.Owner, h)
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
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Finalizer, b.Finalizer), cmp.Compare(a.Owner, b.Owner))
	})
	return groups
}

// addOwner adds the owner of a finalizer to those of the group.
func addOwner(known string, h finalizers.Finalizer) string {
	switch {
	case h.Kind != finalizers.ThirdParty || h.Owner == finalizers.UnknownController || slices.Contains(strings.Split(known, ", "), h.Owner):
		return known
	case known == finalizers.UnknownController:
		return h.Owner
	default:
		return known + ", " + h.Owner
	}
}

// commonAdvice returns what to do about all objects of a group, if it is not the same for each.
func commonAdvice(g *Group, h finalizers.Finalizer) string {
	switch g.Kind {
	case finalizers.Hold:
		return "run gleaner explain KIND/NAME to see what the policy waits for; to release all without a verdict: gleaner release --all"
	case finalizers.ThirdParty:
		return "check that its controller is running, and its log; if the controller was uninstalled: gleaner release --all --finalizer " + h.Name
	case finalizers.Served:
		return "see its kubectl describe, or run gleaner explain KIND/NAME for the objects"
	case finalizers.Archiving:
		return "see its kubectl describe; to let all be deleted without being archived: gleaner release --all --finalizer " + h.Name
	default:
		return g.Advice
	}
}

func objectOf(f Item, h finalizers.Finalizer) Object {
	apiVersion, kind := f.Kind.ToAPIVersionAndKind()
	o := Object{
		Object: record.Object{
			APIVersion: apiVersion, Kind: kind, Namespace: f.GetNamespace(), Name: f.GetName(), UID: f.GetUID(), ResourceVersion: f.GetResourceVersion(),
		},
		Resource: f.Resource, Since: *f.GetDeletionTimestamp(), Finalizers: f.GetFinalizers(), WaitsFor: f.WaitsFor, Blocking: f.Blocking,
	}
	if len(f.GetFinalizers()) != 0 {
		o.Finalizer = &h
	}
	if f.Namespace != nil {
		o.Conditions = remainingContent(f.Namespace)
	}
	return o
}

// finalizersOf returns what blocks the deletion of an object.
func finalizersOf(f Item, book *finalizers.Resources) []finalizers.Finalizer {
	all := book.DescribeAll(f.Object)
	if len(all) != 0 && f.Namespace == nil {
		return all
	}
	if f.Namespace != nil {
		return append(all, namespaceConditions(f.Namespace)...)
	}
	if f.Kind.Kind == "Pod" && f.Kind.Group == "" {
		h := finalizers.Finalizer{Name: "(no finalizer)", Kind: Kubelet, Owner: "the kubelet of node " + f.Node, WaitsFor: "its containers to stop"}
		h.Advice = "check that the node exists and is ready; if it is gone: kubectl delete pod --force, which does not stop the containers"
		if f.Node == "" {
			h.Owner, h.WaitsFor, h.Advice = "the API server", "unknown", "delete it again: kubectl delete pod"
		}
		return []finalizers.Finalizer{h}
	}
	return []finalizers.Finalizer{{
		Name: "(no finalizer)", Kind: None, Owner: "the API server", WaitsFor: "its grace period to pass, or a second delete",
		Advice: "delete it again",
	}}
}

// blockingConditions maps the conditions that block the deletion of a namespace to what to do.
var blockingConditions = map[corev1.NamespaceConditionType]string{
	corev1.NamespaceDeletionDiscoveryFailure: "API discovery failed: see kubectl get apiservices for one that is not Available",
	corev1.NamespaceDeletionGVParsingFailure: "API groups could not be parsed: see kubectl get apiservices",
	corev1.NamespaceDeletionContentFailure:   "its content could not be deleted: see the message, and check the permissions and webhooks in it",
	corev1.NamespaceContentRemaining:         "objects are left in it: run gleaner stuck -n with this namespace to see what blocks them",
	corev1.NamespaceFinalizersRemaining:      "finalizers block objects in it: run gleaner stuck -n with this namespace to see their owners",
}

// namespaceConditions returns what a namespace waits for, one entry for each condition.
func namespaceConditions(n *corev1.Namespace) []finalizers.Finalizer {
	var holders []finalizers.Finalizer
	for _, c := range n.Status.Conditions {
		do, ok := blockingConditions[c.Type]
		if !ok || c.Status != corev1.ConditionTrue {
			continue
		}
		holders = append(holders, finalizers.Finalizer{Name: "(namespace) " + string(c.Type), Kind: Contents, Owner: "the namespace controller", WaitsFor: c.Message, Advice: do})
	}
	if len(holders) == 0 && len(n.Spec.Finalizers) != 0 {
		holders = append(holders, finalizers.Finalizer{
			Name: "(namespace) " + string(n.Spec.Finalizers[0]), Kind: Contents, Owner: "the namespace controller",
			WaitsFor: "the namespace controller to process it", Advice: "check that kube-controller-manager is running",
		})
	}
	return holders
}

// remainingContent returns the conditions about the remaining content of a namespace.
func remainingContent(n *corev1.Namespace) []string {
	var list []string
	for _, c := range n.Status.Conditions {
		if _, ok := blockingConditions[c.Type]; ok && c.Status == corev1.ConditionTrue {
			list = append(list, string(c.Type)+": "+c.Message)
		}
	}
	return list
}

// longerThan reports whether an object has been terminating for longer than a time. The
// deletionTimestamp includes the grace period.
func longerThan(deleted *metav1.Time, than time.Duration, now time.Time) bool {
	return deleted != nil && now.Sub(deleted.Time) > than
}
