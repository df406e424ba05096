package main

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

	"github.com/gleaner-dev/gleaner/cmd/gleaner/kubectl"
	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/release"
)

// protected are finalizers that are not taken off, and what to do in place of it.
var protected = map[string]string{
	graph.Hold:    "it is what is taken off anyway: leave --finalizer out",
	release.InUse: "it is what is taken off anyway: leave --finalizer out",

	"orphan":             "the garbage collector keeps the object's dependents before it takes it off, which would be deleted otherwise: have it running, or delete the object once more with --cascade=background if they are to go",
	"foregroundDeletion": "the object waits for its dependents, which would lose their owner: see what keeps those, or delete the object once more with --cascade=background",
	"kubernetes":         "a namespace has it in spec, and waits for all that is in it: its status says what is left",

	"kubernetes.io/pvc-protection": "a pod still uses the claim, and its data would go under it: delete the pod",
	"kubernetes.io/pv-protection":  "a claim is still bound to the volume, and its data would go under it: delete the claim",
}

var (
	finalizerName = regexp.MustCompile(`^([a-z0-9]([a-z0-9.-]*[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$`)
	kubernetesOwn = regexp.MustCompile(`^([^/]*\.)?(kubernetes\.io|k8s\.io)/`)
)

func (o *releaseOptions) validateFinalizer(args []string) error {
	resource, name, named := o.resource(args)
	switch {
	case o.finalizer != "" && o.policy != "":
		return errors.New("a policy has holds and no other finalizer: write KIND/NAME or --all with --finalizer, or leave it out")
	case named && o.finalizer != "":
		return fmt.Errorf("%s says which finalizer is meant: leave --finalizer out, or write KIND/NAME of the objects", strings.Join(args, " "))
	case named && resource == finalizers && o.AllNamespaces:
		return fmt.Errorf("a Finalizer is in a namespace: say which, with -n in place of -A, or write clusterfinalizer/%s", name)
	case o.live && !named && o.finalizer == "":
		return errors.New("--live goes with --finalizer, finalizer/NAME or clusterfinalizer/NAME: holds are taken off all objects")
	case o.finalizer == "":
		return nil
	case !finalizerName.MatchString(o.finalizer):
		return fmt.Errorf("can't read %q: write a finalizer as it stands in metadata.finalizers, such as example.com/bucket", o.finalizer)
	}
	reason, refused := protected[o.finalizer]
	if !refused && kubernetesOwn.MatchString(o.finalizer) {
		reason, refused = "it is Kubernetes' own, and something still uses the object, or what takes it off doesn't run: see to that", true
	}
	if refused {
		return fmt.Errorf("finalizer %s is not taken off: %s", o.finalizer, reason)
	}
	return nil
}

var (
	finalizers        = schema.GroupResource{Group: v1alpha1.GroupVersion.Group, Resource: "finalizers"}
	clusterFinalizers = schema.GroupResource{Group: v1alpha1.GroupVersion.Group, Resource: "clusterfinalizers"}

	// spellings are what people call them.
	spellings = map[string]schema.GroupResource{
		"finalizer": finalizers, "finalizers": finalizers, "fin": finalizers,
		"clusterfinalizer": clusterFinalizers, "clusterfinalizers": clusterFinalizers, "cfin": clusterFinalizers,
	}
)

// resource is the Finalizer or ClusterFinalizer that is named in place of an object.
func (o *releaseOptions) resource(args []string) (resource schema.GroupResource, name string, named bool) {
	kind, name, err := kubectl.Named(args)
	if err != nil {
		return schema.GroupResource{}, "", false
	}
	word, group, _ := strings.Cut(strings.ToLower(kind), ".")
	if group != "" && group != v1alpha1.GroupVersion.Group && group != v1alpha1.GroupVersion.Version+"."+v1alpha1.GroupVersion.Group {
		return schema.GroupResource{}, "", false
	}
	resource, named = spellings[word]
	return resource, name, named
}

// target is a finalizer that is to be taken off.
type target struct {
	finalizer string
	where     release.Where
	ours      string         // the Finalizer or ClusterFinalizer whose it is, if it is of one
	resource  *release.Where // that one itself, if it is to be freed as well
	narrow    bool           // objects elsewhere may have the finalizer, too
}

func (s *releasing) target(ctx context.Context) (target, error) {
	resource, name, named := s.resource(s.args)
	switch {
	case named && resource == finalizers:
		namespace, err := s.InNamespace()
		if err != nil {
			return target{}, err
		}
		t := target{finalizer: namespace + ".gleaner.dev/" + name, ours: "Finalizer " + namespace + "/" + name}
		t.where = release.Where{Namespace: namespace, Finalizers: []string{t.finalizer}}
		t.resource = &release.Where{Namespace: namespace, Name: name, Select: only(resource), Finalizers: []string{release.InUse}}
		return t, nil
	case named:
		var f v1alpha1.ClusterFinalizer
		if err := s.gleaner.Get(ctx, client.ObjectKey{Name: name}, &f); err != nil {
			return target{}, fmt.Errorf("read the ClusterFinalizer: %w; of one that is gone, write --all and --finalizer with what it served", err)
		}
		t := target{finalizer: f.Spec.Finalizer, ours: "ClusterFinalizer " + name, narrow: *s.Namespace != ""}
		t.where = release.Where{Namespace: *s.Namespace, Finalizers: []string{t.finalizer}}
		t.resource = &release.Where{Name: name, Select: only(resource), Finalizers: []string{release.InUse}}
		return t, nil
	}
	t := target{finalizer: s.finalizer}
	var err error
	if t.ours, err = whose(ctx, s.gleaner, s.finalizer); err != nil {
		return t, err
	}
	if s.live && t.ours == "" {
		return t, fmt.Errorf("no Finalizer or ClusterFinalizer serves %s, and another's finalizer is not taken off objects that are not being deleted: leave --live out", s.finalizer)
	}
	t.where, err = s.where(ctx)
	t.where.Finalizers = []string{t.finalizer}
	return t, err
}

// whose is the Finalizer or ClusterFinalizer that serves a finalizer, or served it;
// "" if it is somebody else's.
func whose(ctx context.Context, c client.Reader, finalizer string) (string, error) {
	domain, name, _ := strings.Cut(finalizer, "/")
	if namespace, ok := strings.CutSuffix(domain, "."+v1alpha1.GroupVersion.Group); ok {
		return "Finalizer " + namespace + "/" + name, nil
	}
	var list v1alpha1.ClusterFinalizerList
	err := c.List(ctx, &list)
	if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
		return "", nil // there are none in this cluster
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

// releaseFinalizer takes a finalizer off the objects that are being deleted, and off
// others if that was said.
func (s *releasing) releaseFinalizer(ctx context.Context, t target) error {
	taken, err := s.find(ctx, t)
	if len(taken) == 0 {
		switch {
		case err != nil:
		case t.where.Name != "":
			err = fmt.Errorf("%s is not being deleted, or does not have %s", t.where.Name, t.finalizer)
		default:
			kubectl.Fprintf(s.out, "Nothing there is being deleted and has %s.\n", t.finalizer)
		}
		return err
	}
	show(s.out, taken)
	if err != nil {
		kubectl.Fprintf(s.out, "Not everything could be looked through: %v\n", err)
	}
	t.warn(s.out, taken)
	if !s.yes && !confirmed(s.in, s.out, fmt.Sprintf("Take %s off %s?", t.finalizer, counted(len(taken), "object", "objects"))) {
		kubectl.Fprintln(s.out, "Nothing was released.")
		return nil
	}
	released, err := s.releaseAll(ctx, taken)
	kubectl.Fprintln(s.out, releaseSummary(released))
	return err
}

// find lists what the finalizer is to be taken off, and says what it is not taken
// off. An error comes with what was found nevertheless.
func (s *releasing) find(ctx context.Context, t target) ([]release.Held, error) {
	found, err := s.look(ctx, t.where)
	if err := oneNamespace(t.where, found); err != nil {
		return nil, err
	}
	going, staying := terminating(found)
	if s.live {
		going, staying = found, 0
	}
	if staying != 0 {
		kubectl.Fprintf(s.out, "%d have %s and are not being deleted: they keep it.\n", staying, t.finalizer)
	}
	if t.resource == nil {
		return going, err
	}
	itself, findErr := s.look(ctx, *t.resource)
	err = errors.Join(err, findErr)
	itself, _ = terminating(itself)
	if why := t.needed(staying); why != "" && len(itself) != 0 {
		kubectl.Fprintf(s.out, "So %s stays as well: %s.\n", t.ours, why)
		return going, err
	}
	return append(going, itself...), err
}

// needed is why the resource itself is not freed: objects that keep its finalizer would
// have nobody any more who takes it off.
func (t target) needed(staying int) string {
	switch {
	case staying != 0:
		return "--live takes it off all"
	case t.narrow:
		return "objects of other namespaces may have its finalizer, which -n leaves out"
	default:
		return ""
	}
}

// terminating are the objects that are being deleted, and how many are not.
func terminating(found []release.Held) (going []release.Held, others int) {
	for _, h := range found {
		if h.Terminating {
			going = append(going, h)
		} else {
			others++
		}
	}
	return going, others
}

// warn says what may be left behind.
func (t target) warn(out io.Writer, taken []release.Held) {
	by := "somebody else's: see first why whoever serves it does not take it off"
	if t.ours != "" {
		by = "of " + t.ours
	}
	kubectl.Fprintf(out, "\n%s is %s.\nWhatever it was to clean up is not cleaned up, and nothing will remember that it is there.\n", t.finalizer, by)
	if _, live := terminating(taken); live != 0 {
		kubectl.Fprintf(out, "%d of these are not being deleted: nothing is cleaned up for them either, when they are deleted one day. "+
			"A running operator puts it back if attach is true: delete the resource first.\n", live)
	}
	kubectl.Fprintln(out)
}
