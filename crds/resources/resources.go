// Package resources lists the custom resources of gleaner.dev. The two kinds with the same
// spec, one in a namespace and one of the cluster, are in one list.
//
// It has no client, and does not decide what a kind that can't be listed means: the caller
// does.
package resources

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
)

// List is a typed list, as controller-runtime's client fills it.
type List interface {
	metav1.ListInterface
	runtime.Object
}

// Object is a typed object, as controller-runtime's client writes it.
type Object interface {
	metav1.Object
	runtime.Object
}

// Resource is a custom resource of one of two kinds.
type Resource[Spec, Status any] struct {
	Object Object
	Kind   string
	Meta   metav1.ObjectMeta
	Spec   Spec
	Status Status
}

type (
	// Module is a PolicyModule or ClusterPolicyModule.
	Module = Resource[v1alpha1.PolicyModuleSpec, v1alpha1.PolicyModuleStatus]

	// Policy is a GCPolicy or ClusterGCPolicy.
	Policy = Resource[v1alpha1.GCPolicySpec, v1alpha1.GCPolicyStatus]

	// Finalizer is a Finalizer or ClusterFinalizer.
	Finalizer = Resource[v1alpha1.FinalizerSpec, v1alpha1.FinalizerStatus]

	// Archive is an ArchivePolicy or ClusterArchivePolicy.
	Archive = Resource[v1alpha1.ArchivePolicySpec, v1alpha1.ArchivePolicyStatus]

	// Retention is a RetentionPolicy or ClusterRetentionPolicy.
	Retention = Resource[v1alpha1.RetentionPolicySpec, v1alpha1.RetentionPolicyStatus]
)

// Resources are all custom resources: of each pair of kinds, those in namespaces first.
type Resources struct {
	Modules    []Module
	Policies   []Policy
	Finalizers []Finalizer
	Archives   []Archive
	Retentions []Retention
}

// lists has a list of each kind.
type lists struct {
	modules           v1alpha1.PolicyModuleList
	clusterModules    v1alpha1.ClusterPolicyModuleList
	policies          v1alpha1.GCPolicyList
	clusterPolicies   v1alpha1.ClusterGCPolicyList
	finalizers        v1alpha1.FinalizerList
	clusterFinalizers v1alpha1.ClusterFinalizerList
	archives          v1alpha1.ArchivePolicyList
	clusterArchives   v1alpha1.ClusterArchivePolicyList
	retentions        v1alpha1.RetentionPolicyList
	clusterRetentions v1alpha1.ClusterRetentionPolicyList
}

// Read fills a list of each kind by a function, until that returns an error.
func Read(list func(kind string, into List) error) (Resources, error) {
	var l lists
	for _, each := range []struct {
		kind string
		into List
	}{
		{v1alpha1.KindPolicyModule, &l.modules}, {v1alpha1.KindClusterPolicyModule, &l.clusterModules},
		{v1alpha1.KindGCPolicy, &l.policies}, {v1alpha1.KindClusterGCPolicy, &l.clusterPolicies},
		{v1alpha1.KindFinalizer, &l.finalizers}, {v1alpha1.KindClusterFinalizer, &l.clusterFinalizers},
		{v1alpha1.KindArchivePolicy, &l.archives}, {v1alpha1.KindClusterArchivePolicy, &l.clusterArchives},
		{v1alpha1.KindRetentionPolicy, &l.retentions}, {v1alpha1.KindClusterRetentionPolicy, &l.clusterRetentions},
	} {
		if err := list(each.kind, each.into); err != nil {
			return Resources{}, err
		}
	}
	return l.resources(), nil
}

func (l *lists) resources() (r Resources) {
	add(&r.Modules, v1alpha1.KindPolicyModule, l.modules.Items, func(o *v1alpha1.PolicyModule) Module { return Module{o, "", o.ObjectMeta, o.Spec, o.Status} })
	add(&r.Modules, v1alpha1.KindClusterPolicyModule, l.clusterModules.Items, func(o *v1alpha1.ClusterPolicyModule) Module {
		return Module{o, "", o.ObjectMeta, o.Spec, o.Status}
	})
	add(&r.Policies, v1alpha1.KindGCPolicy, l.policies.Items, func(o *v1alpha1.GCPolicy) Policy { return Policy{o, "", o.ObjectMeta, o.Spec, o.Status} })
	add(&r.Policies, v1alpha1.KindClusterGCPolicy, l.clusterPolicies.Items, func(o *v1alpha1.ClusterGCPolicy) Policy {
		return Policy{o, "", o.ObjectMeta, o.Spec, o.Status}
	})
	add(&r.Finalizers, v1alpha1.KindFinalizer, l.finalizers.Items, func(o *v1alpha1.Finalizer) Finalizer { return Finalizer{o, "", o.ObjectMeta, o.Spec, o.Status} })
	add(&r.Finalizers, v1alpha1.KindClusterFinalizer, l.clusterFinalizers.Items, func(o *v1alpha1.ClusterFinalizer) Finalizer {
		return Finalizer{o, "", o.ObjectMeta, o.Spec, o.Status}
	})
	add(&r.Archives, v1alpha1.KindArchivePolicy, l.archives.Items, func(o *v1alpha1.ArchivePolicy) Archive { return Archive{o, "", o.ObjectMeta, o.Spec, o.Status} })
	add(&r.Archives, v1alpha1.KindClusterArchivePolicy, l.clusterArchives.Items, func(o *v1alpha1.ClusterArchivePolicy) Archive {
		return Archive{o, "", o.ObjectMeta, o.Spec, o.Status}
	})
	add(&r.Retentions, v1alpha1.KindRetentionPolicy, l.retentions.Items, func(o *v1alpha1.RetentionPolicy) Retention {
		return Retention{o, "", o.ObjectMeta, o.Spec, o.Status}
	})
	add(&r.Retentions, v1alpha1.KindClusterRetentionPolicy, l.clusterRetentions.Items, func(o *v1alpha1.ClusterRetentionPolicy) Retention {
		return Retention{o, "", o.ObjectMeta, o.Spec, o.Status}
	})
	return r
}

// add adds the items of a list, all of one kind.
func add[T, Spec, Status any](to *[]Resource[Spec, Status], kind string, items []T, of func(*T) Resource[Spec, Status]) {
	for i := range items {
		r := of(&items[i])
		r.Kind = kind
		*to = append(*to, r)
	}
}
