package policyset

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/policies"
)

const (
	// defaultTTL is that of archive policies without one, as the API server sets it.
	defaultTTL = 7 * 24 * time.Hour

	// maxArchiveRetry bounds the wait after a failure to archive an object: stores come back
	// without notice.
	maxArchiveRetry = 30 * time.Second
)

// NoStore is why nothing is archived without an Archiver, and what to do.
const NoStore = "the operator was started without an archive: start it with --archive"

// Archiver stores objects that are being deleted, for the finalizers of archive policies. Its
// methods may be called concurrently.
type Archiver interface {
	// Archive stores an object that a user, another controller or the built-in garbage
	// collector is deleting. It returns nil once the object, in the state given, can be read
	// back after a crash: then the finalizer is removed from it, if it is still in that
	// state. With onFailure: Continue, it returns nil as well if the object can't be
	// stored, and done says so. Otherwise the object is kept, and Archive is called again.
	// The object must not be changed.
	Archive(ctx context.Context, a *Archive, object *unstructured.Unstructured) (done string, err error)
}

// Archive is an ArchivePolicy or ClusterArchivePolicy. Its Policy says which objects it
// selects, and has no evaluator.
type Archive struct {
	Declaration
	Spec v1alpha1.ArchivePolicySpec

	TTL      time.Duration // of entries
	Continue bool          // onFailure: Continue; false: what can't be archived is kept

	// Recipients are the public keys that entries are encrypted to. Without any, Secrets are
	// not archived.
	Recipients []string

	// Finalizer keeps objects that are not deleted by Gleaner until they are
	// archived. Nil: no object has one.
	Finalizer *policies.Finalizer
}

// Archives reports whether objects of a resource are archived, if they are selected.
func (a *Archive) Archives(r schema.GroupResource) bool {
	return a.Policy.Selects(r) && (r != secrets || len(a.Recipients) != 0)
}

// OmitsSecrets reports whether Secrets that the policy selects are not archived.
func (a *Archive) OmitsSecrets() bool { return a.Policy.Selects(secrets) && !a.Archives(secrets) }

// WithoutHold returns the resources that the policy names and whose objects never get its
// finalizer, so that they are archived only when Gleaner deletes them.
func (a *Archive) WithoutHold() (list []schema.GroupResource) {
	for _, rule := range a.Policy.Rules {
		for _, r := range rule.NamedResources() {
			if neverHeld(r) && !slices.Contains(list, r) {
				list = append(list, r)
			}
		}
	}
	return list
}

// holds reports whether the objects that the policy selects get its finalizer.
func (a *Archive) holds() bool { return a.Spec.DeletedBy != v1alpha1.DeletedByGleaner }

// ArchivesFor yields the archive policies that archive objects of a resource in a namespace,
// or cluster-scoped ones for "", if their selectors match: see Archive.Selects. Those that
// have a Problem are among them. It is safe to call on nil.
func (s *Snapshot) ArchivesFor(r schema.GroupResource, namespace string) iter.Seq[*Archive] {
	return func(yield func(*Archive) bool) {
		if s == nil || len(s.Archives) == 0 {
			return
		}
		for p := range s.archiveSet.Candidates(hostabi.HookFinalize, r, namespace) {
			if a := s.archiveOf[p]; a.Archives(r) && !yield(a) {
				return
			}
		}
	}
}

// secrets are archived only if they are encrypted.
var secrets = schema.GroupResource{Resource: "secrets"}

// buildArchives builds all archive policies.
func (b *Builder) buildArchives(s *Snapshot) {
	s.archiveOf = map[*policies.Policy]*Archive{}
	all := make([]*policies.Policy, 0, len(s.Archives))
	for _, a := range s.Archives {
		b.buildArchive(a)
		s.archiveOf[a.Policy] = a
		all = append(all, a.Policy)
		if a.Finalizer != nil {
			s.serving = append(s.serving, a.Finalizer)
		}
	}
	s.archiveSet = policies.NewSet(all)
}

// buildArchive sets the policy and the finalizer of a resource. Whatever is wrong with the
// resource, it selects what it names.
func (b *Builder) buildArchive(a *Archive) {
	a.TTL, a.Continue, a.Recipients = durationOr(a.Spec.TTL, defaultTTL), a.Spec.OnFailure == v1alpha1.OnFailureContinue, a.Spec.Recipients
	a.Policy = &policies.Policy{
		Kind: a.Kind, Namespace: a.Key.Namespace, Name: a.Key.Name, Generation: a.Object.GetGeneration(),
		Enforce: true, Hooks: []hostabi.Hook{hostabi.HookFinalize},
	}
	known := b.compileSelection(&a.Declaration)
	if len(a.Recipients) != 0 && b.rules.CheckRecipients != nil {
		if err := b.rules.CheckRecipients(a.Recipients); err != nil {
			a.refuse(v1alpha1.ConditionAccepted, "InvalidRecipient", err.Error())
		}
	}
	switch {
	case !a.Problem.IsZero():
		a.Policy.NotReadyReason = a.Problem.Message
	case b.archiver == nil:
		a.Policy.NotReadyReason = NoStore
	}
	b.setFinalizer(a, known)
}

// setFinalizer sets the finalizer, if objects get one, or may have one from before; known is
// false if what the policy selects is invalid.
func (b *Builder) setFinalizer(a *Archive, known bool) {
	inUse := slices.Contains(a.Object.GetFinalizers(), v1alpha1.InUseFinalizer)
	held := *a.Policy
	held.Rules = a.heldRules()
	if !inUse && (!a.holds() || len(held.Rules) == 0 || b.archiver == nil) {
		return
	}
	deleting := a.Object.GetDeletionTimestamp() != nil
	a.Finalizer = &policies.Finalizer{
		Policy: &held, UID: a.Object.GetUID(), Entry: v1alpha1.ArchiveFinalizer(a.Key.Namespace, a.Key.Name),
		BuiltIn: true, Withdraw: deleting || !a.holds(), Deleting: deleting, RetryInitial: minRetry, RetryMax: maxArchiveRetry,
	}
	a.Finalizer.Attach = a.holds() && inUse && known && b.archiver != nil
	switch {
	case held.NotReadyReason == "":
		a.Finalizer.Handler = archiving{b.archiver, a}
	case a.Continue:
		a.Finalizer.Attach, a.Finalizer.Handler = false, lettingGo(held.NotReadyReason)
	}
}

// heldRules returns rules for the resources whose objects get the finalizer, by name.
func (a *Archive) heldRules() (rules []policies.Rule) {
	for _, rule := range a.Policy.Rules {
		for _, r := range rule.NamedResources() {
			if !neverHeld(r) && a.Archives(r) {
				rules = append(rules, policies.Rule{Groups: []string{r.Group}, Resources: []string{r.Resource}})
			}
		}
	}
	return rules
}

// archiving implements policies.Handler.
type archiving struct {
	archiver Archiver
	archive  *Archive
}

// Handle implements policies.Handler.
func (h archiving) Handle(ctx context.Context, object *unstructured.Unstructured) (string, error) {
	return h.archiver.Archive(ctx, h.archive, object)
}

// lettingGo lets objects be deleted that can't be archived, and says why.
type lettingGo string

// Handle implements policies.Handler.
func (why lettingGo) Handle(context.Context, *unstructured.Unstructured) (string, error) {
	return fmt.Sprintf("it was not archived (onFailure: Continue): %s", string(why)), nil
}

// archives returns the archive policies before they are built.
func (r *Resources) archives() []*Archive {
	list := make([]*Archive, 0, len(r.Archives))
	for _, a := range r.Archives {
		list = append(list, &Archive{Spec: a.Spec, Declaration: Declaration{
			Object: a.Object, Kind: a.Kind, Key: client.ObjectKeyFromObject(a.Object),
			Selection: Selection{Resources: a.Spec.Resources, NamespaceSelector: a.Spec.NamespaceSelector, ObjectSelector: a.Spec.ObjectSelector},
		}})
	}
	return list
}
