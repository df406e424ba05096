package restore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	discoverycache "k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"sigs.k8s.io/yaml"

	"github.com/gleaner-dev/gleaner/devcluster"
	"github.com/gleaner-dev/gleaner/devcluster/devtest"
	archivecli "github.com/gleaner-dev/gleaner/internal/cli/archive"
	"github.com/gleaner-dev/gleaner/internal/cli/exit"
	cli "github.com/gleaner-dev/gleaner/internal/cli/restore"
	"github.com/gleaner-dev/gleaner/operator/archive"
	"github.com/gleaner-dev/gleaner/operator/archive/memory"
	"github.com/gleaner-dev/gleaner/operator/archive/serve"
	"github.com/gleaner-dev/gleaner/operator/debug"
)

// env is a namespace with an archive of its own.
type env struct {
	*testing.T
	cluster   *devcluster.Cluster
	objects   dynamic.Interface
	mapper    *restmapper.DeferredDiscoveryRESTMapper
	namespace string
	archive   *memory.Archive
	endpoint  string
}

func newEnv(t *testing.T) *env {
	t.Helper()
	e := &env{T: t, cluster: devtest.Shared(t), archive: &memory.Archive{}}
	config := e.cluster.RESTConfig()
	config.QPS, config.WarningHandlerWithContext = -1, rest.NoWarnings{}
	e.namespace = devtest.Namespace(t, config)
	var err error
	if e.objects, err = dynamic.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	e.mapper = restmapper.NewDeferredDiscoveryRESTMapper(discoverycache.NewMemCacheClient(client))
	mux := http.NewServeMux()
	for path, handler := range serve.Handlers(serve.Source{Archive: e.archive, ReadAccess: func(r *http.Request) debug.ReadAccess { return debug.AllowAll(r) }}) {
		mux.Handle(path, handler)
	}
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	e.endpoint = server.URL
	return e
}

// of returns the client for the type and the namespace of an object.
func (e *env) of(o *unstructured.Unstructured) dynamic.ResourceInterface {
	e.Helper()
	gvk := o.GroupVersionKind()
	var mapping *meta.RESTMapping
	devtest.Eventually(e, timeout, func() (err error) {
		mapping, err = e.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
		if err != nil {
			e.mapper.Reset()
		}
		return err
	})
	return e.objects.Resource(mapping.Resource).Namespace(o.GetNamespace())
}

// create creates the object of a manifest, in the namespace of the test unless it says otherwise, with
// owners.
func (e *env) create(manifest string, owners ...*unstructured.Unstructured) *unstructured.Unstructured {
	e.Helper()
	o := &unstructured.Unstructured{Object: map[string]any{}}
	if err := yaml.Unmarshal([]byte(manifest), &o.Object); err != nil {
		e.Fatal(err)
	}
	if namespaced(o) && o.GetNamespace() == "" {
		o.SetNamespace(e.namespace)
	}
	var refs []metav1.OwnerReference
	for _, owner := range owners {
		refs = append(refs, metav1.OwnerReference{APIVersion: owner.GetAPIVersion(), Kind: owner.GetKind(), Name: owner.GetName(), UID: owner.GetUID()})
	}
	if len(refs) != 0 {
		o.SetOwnerReferences(refs)
	}
	var created *unstructured.Unstructured
	devtest.Eventually(e, timeout, func() (err error) { // a type may be served only by and by
		created, err = e.of(o).Create(e.Context(), o, metav1.CreateOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			e.Fatal(err)
		}
		return err
	})
	return created
}

func namespaced(o *unstructured.Unstructured) bool {
	switch o.GetKind() {
	case "Namespace", "CustomResourceDefinition", "PersistentVolume", "ClusterRole", "ClusterRoleBinding":
		return false
	default:
		return true
	}
}

func (e *env) configMap(name string, owners ...*unstructured.Unstructured) *unstructured.Unstructured {
	e.Helper()
	return e.create(fmt.Sprintf("{apiVersion: v1, kind: ConfigMap, metadata: {name: %s, labels: {a: b}}, data: {k: v}}", name), owners...)
}

// read reads an object again; nil: it does not exist.
func (e *env) read(o *unstructured.Unstructured) *unstructured.Unstructured {
	e.Helper()
	live, err := e.of(o).Get(e.Context(), o.GetName(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		e.Fatal(err)
	}
	return live
}

// list returns the objects of a kind in the namespace of the test.
func (e *env) list(apiVersion, kind string) []*unstructured.Unstructured {
	e.Helper()
	o := &unstructured.Unstructured{}
	o.SetAPIVersion(apiVersion)
	o.SetKind(kind)
	o.SetNamespace(e.namespace)
	page, err := e.of(o).List(e.Context(), metav1.ListOptions{})
	if err != nil {
		e.Fatal(err)
	}
	var all []*unstructured.Unstructured
	for i := range page.Items {
		all = append(all, &page.Items[i])
	}
	return all
}

// store archives objects as they are now, in this order, and returns them.
func (e *env) store(cause archive.Cause, objects ...*unstructured.Unstructured) []*unstructured.Unstructured {
	e.Helper()
	return e.storeFor(nil, cause, objects...)
}

func (e *env) storeFor(recipients []age.Recipient, cause archive.Cause, objects ...*unstructured.Unstructured) []*unstructured.Unstructured {
	e.Helper()
	var stored []*unstructured.Unstructured
	for _, o := range objects {
		live := e.read(o)
		if live == nil {
			e.Fatalf("%s %s does not exist", o.GetKind(), o.GetName())
		}
		e.archive.Add(e, live, time.Now(), cause, recipients...)
		stored = append(stored, live)
	}
	return stored
}

// remove deletes objects, without their finalizers, and waits until all are gone.
func (e *env) remove(roots []*unstructured.Unstructured, all ...*unstructured.Unstructured) {
	e.Helper()
	background, now := metav1.DeletePropagationBackground, int64(0)
	for _, o := range roots {
		err := e.of(o).Delete(e.Context(), o.GetName(), metav1.DeleteOptions{PropagationPolicy: &background, GracePeriodSeconds: &now})
		if err != nil && !apierrors.IsNotFound(err) {
			e.Fatal(err)
		}
	}
	devtest.Eventually(e, timeout, func() error {
		for _, o := range slices.Concat(roots, all) {
			if live := e.read(o); live != nil && live.GetUID() == o.GetUID() {
				return fmt.Errorf("%s %s still exists, with finalizers %v", o.GetKind(), o.GetName(), live.GetFinalizers())
			}
		}
		return nil
	})
}

// run runs gleaner restore, or gleaner undo or archive if the first argument says so, and returns its
// output and exit code.
func (e *env) run(args ...string) (out string, code int) {
	e.Helper()
	var b bytes.Buffer
	return e.runTo(e.Context(), &b, args...)
}

func (e *env) runTo(ctx context.Context, b interface {
	Write([]byte) (int, error)
	String() string
}, args ...string) (out string, code int) {
	e.Helper()
	cmd, subcommand := cli.Command(), []string(nil)
	switch args[0] {
	case "undo":
		cmd, args = cli.UndoCommand(), args[1:]
	case "archive":
		cmd, subcommand, args = archivecli.Command(), args[1:2], args[2:]
	}
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetArgs(slices.Concat(subcommand, []string{"--kubeconfig=" + e.cluster.Kubeconfig(), "--endpoint=" + e.endpoint}, args)) // of two flags, the last one counts
	cmd.SetOut(b)
	cmd.SetErr(b)
	cmd.SetIn(strings.NewReader(""))
	err := cmd.ExecuteContext(ctx)
	if err == nil {
		return b.String(), 0
	}
	status := exit.Error{Code: exit.CodeFailure}
	errors.As(err, &status)
	return b.String() + err.Error() + "\n", status.Code
}

// restore runs gleaner restore, which has to succeed.
func (e *env) restore(args ...string) string {
	e.Helper()
	out, code := e.run(append(args, "--yes")...)
	if code != 0 {
		e.Fatalf("restore %s: exit code %d\n%s", strings.Join(args, " "), code, out)
	}
	return out
}

// uids returns the current UIDs of objects by their former ones.
func (e *env) uids(archived []*unstructured.Unstructured) map[types.UID]types.UID {
	e.Helper()
	current := map[types.UID]types.UID{}
	for _, o := range archived {
		if live := e.read(o); live != nil {
			current[o.GetUID()] = live.GetUID()
		}
	}
	return current
}

// cleanup returns a context for what is done after the test.
func (e *env) cleanup() context.Context { return context.WithoutCancel(e.Context()) }
