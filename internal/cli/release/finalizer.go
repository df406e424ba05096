package release

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/internal/cli/kubectl"
	"github.com/gleaner-dev/gleaner/internal/cli/printer"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/release"
)

// protected are finalizers that are never removed, with what to do instead.
var protected = map[string]string{
	graph.Hold:              "it is removed by default: omit --finalizer",
	v1alpha1.InUseFinalizer: "it is removed by default: omit --finalizer",

	"orphan":             "the garbage collector orphans the object's dependents before it removes this finalizer; without it they would be deleted: make sure that a garbage collector is running, or delete the object again with --cascade=background if they should be deleted",
	"foregroundDeletion": "the object waits for its dependents, which would lose their owner: check what blocks them, or delete the object again with --cascade=background",
	"kubernetes":         "a namespace has it in its spec, and waits for its content to be deleted: see what is left in its status",

	"kubernetes.io/pvc-protection": "a pod still uses the claim, and would lose its data: delete the pod",
	"kubernetes.io/pv-protection":  "a claim is still bound to the volume, and would lose its data: delete the claim",
}

var (
	finalizerName    = regexp.MustCompile(`^([a-z0-9]([a-z0-9.-]*[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$`)
	kubernetesDomain = regexp.MustCompile(`^([^/]*\.)?(kubernetes\.io|k8s\.io)/`)
)

func (o *options) validateFinalizer(args []string) error {
	resource, name, named := o.namedResource(args)
	switch {
	case o.finalizer != "" && o.policy != "":
		return errors.New("--policy releases holds only: use KIND/NAME or --all with --finalizer, or omit --finalizer")
	case named && o.finalizer != "":
		return fmt.Errorf("%s already names the finalizer: omit --finalizer, or write KIND/NAME of the objects", strings.Join(args, " "))
	case named && resource == archivesResource && o.AllNamespaces:
		return fmt.Errorf("an ArchivePolicy is namespaced: use -n instead of -A, or write clusterarchivepolicy/%s", name)
	case named && resource == finalizersResource && o.AllNamespaces:
		return fmt.Errorf("a Finalizer is namespaced: use -n instead of -A, or write clusterfinalizer/%s", name)
	case o.live && !named && o.finalizer == "":
		return errors.New("--live requires --finalizer, finalizer/NAME or clusterfinalizer/NAME: holds are removed from all objects")
	case o.finalizer == "":
		return nil
	case !finalizerName.MatchString(o.finalizer):
		return fmt.Errorf("invalid finalizer %q: write it as in metadata.finalizers, such as example.com/bucket", o.finalizer)
	}
	reason, refused := protected[o.finalizer]
	if !refused && kubernetesDomain.MatchString(o.finalizer) {
		reason, refused = "it belongs to Kubernetes: something still uses the object, or the controller that removes it is not running", true
	}
	if refused {
		return fmt.Errorf("finalizer %s can't be removed: %s", o.finalizer, reason)
	}
	return nil
}

var (
	finalizersResource        = schema.GroupResource{Group: v1alpha1.GroupVersion.Group, Resource: "finalizers"}
	clusterFinalizersResource = schema.GroupResource{Group: v1alpha1.GroupVersion.Group, Resource: "clusterfinalizers"}
	archivesResource          = schema.GroupResource{Group: v1alpha1.GroupVersion.Group, Resource: "archivepolicies"}
	clusterArchivesResource   = schema.GroupResource{Group: v1alpha1.GroupVersion.Group, Resource: "clusterarchivepolicies"}

	// finalizerResources are the resource names, singular names and short names.
	finalizerResources = map[string]schema.GroupResource{
		"finalizer": finalizersResource, "finalizers": finalizersResource, "fin": finalizersResource,
		"clusterfinalizer": clusterFinalizersResource, "clusterfinalizers": clusterFinalizersResource, "cfin": clusterFinalizersResource,
		"archivepolicy": archivesResource, "archivepolicies": archivesResource, "archpol": archivesResource,
		"clusterarchivepolicy": clusterArchivesResource, "clusterarchivepolicies": clusterArchivesResource, "carchpol": clusterArchivesResource,
	}
)

// namedResource returns the resource with a finalizer that the arguments name, if they do.
func (o *options) namedResource(args []string) (resource schema.GroupResource, name string, named bool) {
	kind, name, err := kubectl.ParseTarget(args)
	if err != nil {
		return schema.GroupResource{}, "", false
	}
	word, group, _ := strings.Cut(strings.ToLower(kind), ".")
	if group != "" && group != v1alpha1.GroupVersion.Group && group != v1alpha1.GroupVersion.Version+"."+v1alpha1.GroupVersion.Group {
		return schema.GroupResource{}, "", false
	}
	resource, named = finalizerResources[word]
	return resource, name, named
}

// target is a finalizer to remove.
type target struct {
	finalizer         string
	selection         release.Selection
	owner             string             // the resource of Gleaner that it belongs to, if any
	resourceSelection *release.Selection // that resource, if it is to be released as well
	namespaceOnly     bool               // objects in other namespaces may have the finalizer as well
}

func (s *releaseRun) target(ctx context.Context) (target, error) {
	resource, name, named := s.namedResource(s.args)
	switch {
	case named && resource == finalizersResource:
		namespace, err := s.ResolveNamespace()
		if err != nil {
			return target{}, err
		}
		t := target{finalizer: namespace + ".gleaner.dev/" + name, owner: "Finalizer " + namespace + "/" + name}
		t.selection = release.Selection{Namespace: namespace, Finalizers: []string{t.finalizer}}
		t.resourceSelection = &release.Selection{Namespace: namespace, Name: name, SelectResource: matchResource(resource), Finalizers: []string{v1alpha1.InUseFinalizer}}
		return t, nil
	case named && resource == archivesResource:
		namespace, err := s.ResolveNamespace()
		return archiveTarget(resource, namespace, name, namespace), err
	case named && resource == clusterArchivesResource:
		return archiveTarget(resource, "", name, *s.Namespace), nil
	case named:
		var f v1alpha1.ClusterFinalizer
		if err := s.gleaner.Get(ctx, client.ObjectKey{Name: name}, &f); err != nil {
			return target{}, fmt.Errorf("read the ClusterFinalizer: %w; for a deleted one, use --all --finalizer with its finalizer", err)
		}
		t := target{finalizer: f.Spec.Finalizer, owner: "ClusterFinalizer " + name, namespaceOnly: *s.Namespace != ""}
		t.selection = release.Selection{Namespace: *s.Namespace, Finalizers: []string{t.finalizer}}
		t.resourceSelection = &release.Selection{Name: name, SelectResource: matchResource(resource), Finalizers: []string{v1alpha1.InUseFinalizer}}
		return t, nil
	}
	t := target{finalizer: s.finalizer}
	var err error
	if t.owner, err = finalizerOwner(ctx, s.gleaner, s.finalizer); err != nil {
		return t, err
	}
	if s.live && t.owner == "" {
		return t, fmt.Errorf("no Finalizer or ClusterFinalizer has the finalizer %s, and finalizers of other controllers are removed only from objects that are being deleted: omit --live", s.finalizer)
	}
	t.selection, err = s.selection(ctx)
	t.selection.Finalizers = []string{t.finalizer}
	return t, err
}

// archiveTarget returns the finalizer of an archive policy, on objects in a namespace.
func archiveTarget(resource schema.GroupResource, policyNamespace, name, namespace string) target {
	t := target{finalizer: v1alpha1.ArchiveFinalizer(policyNamespace, name), namespaceOnly: policyNamespace == "" && namespace != ""}
	t.owner = archiveOwner(policyNamespace, name)
	t.selection = release.Selection{Namespace: namespace, Finalizers: []string{t.finalizer}}
	t.resourceSelection = &release.Selection{
		Namespace: policyNamespace, Name: name, SelectResource: matchResource(resource), Finalizers: []string{v1alpha1.InUseFinalizer},
	}
	return t
}

func archiveOwner(namespace, name string) string {
	if namespace == "" {
		return v1alpha1.KindClusterArchivePolicy + " " + name
	}
	return v1alpha1.KindArchivePolicy + " " + namespace + "/" + name
}

// finalizerOwner returns the resource of Gleaner to which a finalizer belongs or belonged;
// "" if it belongs to another controller.
func finalizerOwner(ctx context.Context, c client.Reader, finalizer string) (string, error) {
	if namespace, name, ok := v1alpha1.ParseArchiveFinalizer(finalizer); ok {
		return archiveOwner(namespace, name), nil
	}
	domain, name, _ := strings.Cut(finalizer, "/")
	if namespace, ok := strings.CutSuffix(domain, "."+v1alpha1.GroupVersion.Group); ok {
		return "Finalizer " + namespace + "/" + name, nil
	}
	var list v1alpha1.ClusterFinalizerList
	err := c.List(ctx, &list)
	if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
		return "", nil // the type is not installed
	}
	if err != nil {
		return "", fmt.Errorf("list ClusterFinalizers: %w", err)
	}
	for _, f := range list.Items {
		if f.Spec.Finalizer == finalizer {
			return "ClusterFinalizer " + f.Name, nil
		}
	}
	return "", nil
}

// releaseFinalizer removes a finalizer from objects that are being deleted, and with --live
// from others.
func (s *releaseRun) releaseFinalizer(ctx context.Context, t target) error {
	taken, err := s.find(ctx, t)
	if len(taken) == 0 {
		switch {
		case err != nil:
		case t.selection.Name != "":
			err = fmt.Errorf("%s is not being deleted, or does not have %s", t.selection.Name, t.finalizer)
		default:
			printer.Fprintf(s.out, "No object with finalizer %s is being deleted.\n", t.finalizer)
		}
		return err
	}
	printHeld(s.out, taken)
	if err != nil {
		printer.Fprintf(s.out, "Some types could not be searched: %v\n", err)
	}
	t.warn(s.out, taken)
	question := fmt.Sprintf("Remove %s from %s?", t.finalizer, printer.Count(len(taken), "object", "objects"))
	if confirmed, err := s.prompt().Confirm(question, "Nothing was released."); err != nil || !confirmed {
		return err
	}
	released, err := s.releaseAll(ctx, taken)
	printer.Fprintln(s.out, releaseSummary(released))
	return err
}

// find returns the objects to remove the finalizer from, and prints how many keep it. With an
// error, it returns the objects that could be found.
func (s *releaseRun) find(ctx context.Context, t target) ([]release.HeldObject, error) {
	found, err := s.search(ctx, t.selection)
	if err := oneNamespace(t.selection, found); err != nil {
		return nil, err
	}
	going, staying := splitTerminating(found)
	if s.live {
		going, staying = found, 0
	}
	if staying != 0 {
		printer.Fprintf(s.out, "Skipping %s with finalizer %s: not being deleted.\n", printer.Count(staying, "object", "objects"), t.finalizer)
	}
	if t.resourceSelection == nil {
		return going, err
	}
	itself, findErr := s.search(ctx, *t.resourceSelection)
	err = errors.Join(err, findErr)
	itself, _ = splitTerminating(itself)
	if why := t.reasonToKeep(staying); why != "" && len(itself) != 0 {
		printer.Fprintf(s.out, "%s is not released: %s.\n", t.owner, why)
		return going, err
	}
	return append(going, itself...), err
}

// reasonToKeep returns why the resource itself is not released: the finalizer of the objects that
// keep it could no longer be handled.
func (t target) reasonToKeep(staying int) string {
	switch {
	case staying != 0:
		return "some objects keep its finalizer; --live removes it from all"
	case t.namespaceOnly:
		return "objects in other namespaces, excluded by -n, may have its finalizer"
	default:
		return ""
	}
}

// splitTerminating returns the objects that are being deleted, and the number of others.
func splitTerminating(found []release.HeldObject) (going []release.HeldObject, others int) {
	for _, h := range found {
		if h.Terminating {
			going = append(going, h)
		} else {
			others++
		}
	}
	return going, others
}

// warn prints what may be left behind.
func (t target) warn(out io.Writer, taken []release.HeldObject) {
	by := "another controller: check first why that controller does not remove it"
	if t.owner != "" {
		by = t.owner
	}
	skipped := "The cleanup of this finalizer is skipped: external resources may be left behind."
	if _, _, archive := v1alpha1.ParseArchiveFinalizer(t.finalizer); archive {
		skipped = "These objects are deleted without being archived, and cannot be restored."
	}
	printer.Fprintf(out, "\n%s belongs to %s.\n%s\n", t.finalizer, by, skipped)
	if _, live := splitTerminating(taken); live != 0 {
		printer.Fprintf(out, "%d of these objects are not being deleted: the cleanup will also be skipped when they are deleted later. "+
			"A running operator adds the finalizer again if attach is true: delete the resource first.\n", live)
	}
	printer.Fprintln(out)
}
