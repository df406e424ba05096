package archiver

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gleaner-dev/gleaner/operator/act"
	"github.com/gleaner-dev/gleaner/operator/archive"
	"github.com/gleaner-dev/gleaner/operator/bulkread"
	"github.com/gleaner-dev/gleaner/operator/catalog"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/policyset"
	"github.com/gleaner-dev/gleaner/operator/writer"
	"github.com/gleaner-dev/gleaner/policies"
)

// Step returns the step that archives what a write deletes, in exactly the state in which the
// write deletes it.
func (a *Archiver) Step() writer.Step { return step{a} }

type step struct{ *Archiver }

// Settle implements writer.Step. An entry stays although the object was not deleted in the end: it
// is deleted later, and may have another entry then, or it exists, which restoring it reports.
func (s step) Settle(_ context.Context, w writer.Write, end writer.Settlement) {
	if len(w.References) != 0 && end.Sent && end.Err == nil && s.archives() {
		s.former.add(w.Target.UID, w.References)
	}
	if w.Effect == writer.Deletes && (!end.Sent || end.Result == act.Changed) {
		s.lineage.forget(w.Target.UID)
	}
}

// Admit implements writer.Step.
func (s step) Admit(ctx context.Context, w writer.Write) (writer.Admission, error) {
	o := w.Target
	if w.Effect != writer.Deletes || o.Terminating { // a second DELETE changes what happens to dependents
		return pass, nil
	}
	snapshot := s.Snapshot()
	if snapshot == nil {
		return writer.Admission{Outcome: writer.Wait, Reason: "the archive policies have not been read yet"}, nil
	}
	if len(snapshot.Archives) == 0 {
		return pass, nil
	}
	cause := s.causeOf(ctx, w)
	admission := s.archive(ctx, candidate{Archiver: s.Archiver, snapshot: snapshot, object: o}, cause)
	if admission.Outcome == writer.Pass {
		s.lineage.put(o.UID, cause)
	}
	return admission, nil
}

// archive archives an object if a policy selects it.
func (s step) archive(ctx context.Context, c candidate, cause archive.Cause) writer.Admission {
	if err := c.find(ctx); err != nil {
		return s.stop(c, err)
	}
	switch {
	case len(c.maybe) == 0, c.gone:
		return pass
	case c.changed:
		return writer.Admission{Outcome: writer.Changed, Reason: "it has changed since it was decided about"}
	}
	c.leaveToFinalizers()
	if len(c.maybe) == 0 {
		return pass
	}
	if err := s.put(ctx, c.read, c.maybe, cause); err != nil {
		return s.stop(c, err)
	}
	return pass
}

var pass = writer.Admission{Outcome: writer.Pass}

// stop handles an object that can't be archived.
func (s step) stop(c candidate, err error) writer.Admission {
	s.fail(referenceOf(c.object), c.maybe, err)
	if keeps(c.maybe) {
		return writer.Admission{Outcome: writer.Refuse, Reason: "it can't be archived: " + err.Error()}
	}
	return pass
}

// candidate is an object that is about to be deleted.
type candidate struct {
	*Archiver
	snapshot *policyset.Snapshot
	object   graph.Object // as it was decided about

	maybe   []*policyset.Archive       // the policies that select it, or of which that is not known yet
	read    *unstructured.Unstructured // nil: not read yet
	gone    bool                       // the API server says that it does not exist
	changed bool                       // it is in another state than the one that was decided about
}

// find finds the policies that archive the object, and reads it if there may be any. With an
// error, maybe has those that may.
func (c *candidate) find(ctx context.Context) error {
	resource, served := c.Catalog().Preferred(c.object.Kind.GroupKind())
	if !served {
		return nil // nothing of it can be deleted
	}
	gr := resource.Version.GroupResource()
	c.maybe = slices.Collect(c.snapshot.ArchivesFor(gr, c.object.Namespace))
	if len(c.maybe) == 0 {
		return nil
	}
	namespace, err := c.namespaceLabels(ctx)
	c.maybe = slices.DeleteFunc(c.maybe, func(p *policyset.Archive) bool {
		return c.snapshot.SelectsSeen(p, gr, c.object, namespace) == policyset.NotMatched
	})
	if len(c.maybe) == 0 {
		return nil
	}
	if err != nil {
		return err
	}
	if err := c.readObject(ctx, resource); err != nil || c.gone || c.changed {
		return err
	}
	labels := policyset.KnownLabels(c.read.GetLabels())
	c.maybe = slices.DeleteFunc(c.maybe, func(p *policyset.Archive) bool {
		return p.Selects(labels, namespace) == policyset.NotMatched
	})
	return nil
}

// namespaceLabels returns the labels of the object's namespace, if a policy needs them.
func (c *candidate) namespaceLabels(ctx context.Context) (policyset.Labels, error) {
	needed := slices.ContainsFunc(c.maybe, func(p *policyset.Archive) bool {
		return p.Policy.NamespaceSelector != nil && !p.Policy.NamespaceSelector.Empty()
	})
	if !needed || c.object.Namespace == "" {
		return policyset.KnownLabels(nil), nil
	}
	namespace, err := c.Reader.Namespace(ctx, c.object.Namespace)
	if err != nil {
		return policyset.Labels{}, fmt.Errorf("read its namespace: %w", err)
	}
	return policyset.KnownLabels(namespace.Labels), nil
}

// readObject reads the whole object.
func (c *candidate) readObject(ctx context.Context, resource catalog.Resource) (err error) {
	o := c.object
	if c.Bulk != nil {
		wanted := bulkread.Wanted{Resource: resource, Namespace: o.Namespace, Name: o.Name, UID: o.UID, ResourceVersion: o.ResourceVersion}
		if listed, ok := c.Bulk.Get(wanted); ok {
			c.read = listed
			return nil
		}
	}
	c.read, err = c.Reader.Get(ctx, policies.ServiceAccount{}, resource.Version, o.Namespace, o.Name)
	switch {
	case err != nil && catalog.ConfirmsNotFound(err, resource.Version.GroupResource(), o.Name):
		c.gone = true
		return nil
	case err != nil:
		return err
	}
	c.changed = c.read.GetUID() != o.UID || c.read.GetResourceVersion() != o.ResourceVersion
	return nil
}

// leaveToFinalizers removes the policies whose finalizer the object has: it stays until they have
// archived it, in its last state.
func (c *candidate) leaveToFinalizers() {
	entries := c.read.GetFinalizers()
	c.maybe = slices.DeleteFunc(c.maybe, func(p *policyset.Archive) bool {
		return p.Finalizer != nil && slices.Contains(entries, p.Finalizer.Entry)
	})
}

func referenceOf(o graph.Object) archive.Reference {
	apiVersion, kind := o.Kind.ToAPIVersionAndKind()
	return archive.Reference{APIVersion: apiVersion, Kind: kind, Namespace: o.Namespace, Name: o.Name, UID: o.UID}
}
