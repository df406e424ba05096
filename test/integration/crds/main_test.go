// Package crds tests how the API server handles the custom resources: what it
// refuses and with which message, which defaults it fills in, and what kubectl shows.
// No collector runs on the control plane of these tests.
package crds

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/devcluster"
	"github.com/gleaner-dev/gleaner/devcluster/devtest"
)

const (
	timeout   = time.Minute
	manifests = "../../../crds/manifests"
	namespace = "default"
)

func TestMain(m *testing.M) { devtest.Run(m, devcluster.Options{NoControllerManager: true}) }

// kind is one of the custom resources.
type kind struct {
	name, resource string
	cluster        bool
}

var (
	policy        = kind{v1alpha1.KindGCPolicy, "gcpolicies", false}
	clusterPolicy = kind{v1alpha1.KindClusterGCPolicy, "clustergcpolicies", true}
	module        = kind{v1alpha1.KindPolicyModule, "policymodules", false}
	clusterModule = kind{v1alpha1.KindClusterPolicyModule, "clusterpolicymodules", true}

	finalizer        = kind{v1alpha1.KindFinalizer, "finalizers", false}
	clusterFinalizer = kind{v1alpha1.KindClusterFinalizer, "clusterfinalizers", true}

	archive        = kind{v1alpha1.KindArchivePolicy, "archivepolicies", false}
	clusterArchive = kind{v1alpha1.KindClusterArchivePolicy, "clusterarchivepolicies", true}

	pause        = kind{v1alpha1.KindPause, "pauses", false}
	clusterPause = kind{v1alpha1.KindClusterPause, "clusterpauses", true}

	budget           = kind{v1alpha1.KindDeletionBudget, "deletionbudgets", false}
	clusterBudget    = kind{v1alpha1.KindClusterDeletionBudget, "clusterdeletionbudgets", true}
	retention        = kind{v1alpha1.KindRetentionPolicy, "retentionpolicies", false}
	clusterRetention = kind{v1alpha1.KindClusterRetentionPolicy, "clusterretentionpolicies", true}

	nodePolicy = kind{v1alpha1.KindNodeRetentionPolicy, "noderetentionpolicies", true}
	nodeStatus = kind{v1alpha1.KindNodeRetention, "noderetentions", true}

	imageRemoval = kind{v1alpha1.KindImageRemovalRequest, "imageremovalrequests", true}

	kinds = []kind{
		policy, clusterPolicy, module, clusterModule, finalizer, clusterFinalizer, archive, clusterArchive, pause, clusterPause, budget, clusterBudget, retention, clusterRetention,
		nodePolicy, nodeStatus, imageRemoval,
	}
)

func kindOf(t *testing.T, name string) kind {
	t.Helper()
	for _, k := range kinds {
		if k.name == name {
			return k
		}
	}
	t.Fatalf("kind %q not found", name)
	return kind{}
}

// api is a test's access to the API server, which serves the custom resources.
type api struct {
	*testing.T
	cluster *devcluster.Cluster
	objects dynamic.Interface
}

var install struct {
	once sync.Once
	err  error
}

func newAPI(t *testing.T) *api {
	t.Helper()
	cluster := devtest.Shared(t)
	a := &api{T: t, cluster: cluster, objects: dynamic.NewForConfigOrDie(cluster.RESTConfig())}
	install.once.Do(func() { install.err = a.install() })
	if install.err != nil {
		t.Fatal(install.err)
	}
	return a
}

// install applies the manifests as a user would. Discovery lists a new kind a little
// later than it is served, and kubectl caches discovery.
func (a *api) install() error {
	for _, folder := range []string{manifests, manifests + "/archive", manifests + "/safety", manifests + "/retention", manifests + "/node"} {
		if _, err := a.cluster.Kubectl(a.Context(), "apply", "--server-side", "-k", folder); err != nil {
			return err
		}
	}
	if _, err := a.cluster.Kubectl(a.Context(), "wait", "--for=condition=Established", "--timeout=60s", "crd", "--all"); err != nil {
		return err
	}
	devtest.Eventually(a, timeout, func() error {
		found, err := a.cluster.Kubectl(a.Context(), "api-resources", "--cached=false", "--api-group="+v1alpha1.GroupVersion.Group, "-o", "name")
		if err == nil && len(lines(found)) != len(kinds) {
			err = fmt.Errorf("discovery lists %q", found)
		}
		return err
	})
	return nil
}

func (a *api) client(k kind) dynamic.ResourceInterface {
	resource := a.objects.Resource(v1alpha1.GroupVersion.WithResource(k.resource))
	if k.cluster {
		return resource
	}
	return resource.Namespace(namespace)
}

// dryRun creates an object in a dry run, with strict field validation as kubectl does,
// and returns its spec.
func (a *api) dryRun(k kind, spec any) (map[string]any, error) {
	return a.dryRunNamed(k, "tried", spec)
}

func (a *api) dryRunNamed(k kind, name string, spec any) (map[string]any, error) {
	options := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict}
	made, err := a.client(k).Create(a.Context(), object(k, name, spec), options)
	if err != nil {
		return nil, err
	}
	return made.Object["spec"].(map[string]any), nil
}

func object(k kind, name string, spec any) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	o.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(k.name))
	o.SetName(name)
	return o
}

func (a *api) kubectl(args ...string) string {
	a.Helper()
	out, err := a.cluster.Kubectl(a.Context(), args...)
	if err != nil {
		a.Fatal(err)
	}
	return out
}

// validationErrors returns the API server's validation errors of an object: the field, empty
// if the object could not be decoded, and the message.
func validationErrors(err error) ([]string, error) {
	status := apierrors.APIStatus(nil)
	if !errors.As(err, &status) {
		return nil, fmt.Errorf("unexpected error: %w", err)
	}
	details := status.Status().Details
	if details == nil || len(details.Causes) == 0 {
		return []string{": " + status.Status().Message}, nil
	}
	var list []string
	for _, cause := range details.Causes {
		if strings.Contains(cause.Message, "some validation rules were not checked") {
			continue // has no field; the errors of fields come with it
		}
		list = append(list, cause.Field+": "+cause.Message)
	}
	slices.Sort(list)
	return list, nil
}

// load reads a file of testdata strictly.
func load[T any](t *testing.T, name string) T {
	t.Helper()
	var into T
	data, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(data, &into); err != nil {
		t.Fatalf("read %s: %v", name, err)
	}
	return into
}

// merge applies a JSON merge patch to a document.
func merge(document, patch any) any {
	changes, ok := patch.(map[string]any)
	if !ok {
		return patch
	}
	old, _ := document.(map[string]any)
	merged := map[string]any{}
	for field, value := range old {
		merged[field] = value
	}
	for field, value := range changes {
		if value == nil {
			delete(merged, field)
			continue
		}
		merged[field] = merge(old[field], value)
	}
	return merged
}

// convert converts a value through JSON.
func convert[T any](t *testing.T, from any) T {
	t.Helper()
	var into T
	data, err := json.Marshal(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(data, &into); err != nil {
		t.Fatalf("read %s: %v", data, err)
	}
	return into
}

// lines returns a text's lines without trailing space.
func lines(text string) []string {
	var list []string
	for line := range strings.Lines(text) {
		list = append(list, strings.TrimRight(line, " \n"))
	}
	return list
}
