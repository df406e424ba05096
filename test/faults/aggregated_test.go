package faults

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	apiregistration "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregator "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"
	"k8s.io/utils/ptr"

	"github.com/gleaner-dev/gleaner/devcluster/devtest"
)

// aggregatedAPI is an aggregated API server with one object. A test can replace its
// responses.
type aggregatedAPI struct {
	kind    *kind
	object  map[string]any
	respond atomic.Pointer[faultHandler]
}

// ServeHTTP serves the API server's requests, which it has authenticated.
func (e *aggregatedAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if mood := e.respond.Load(); mood != nil {
		(*mood)(w, r, nil)
		return
	}
	gv := e.kind.resource.GroupVersion().String()
	name := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
	switch {
	case r.URL.Path == "/apis/"+gv:
		writeJSON(w, &metav1.APIResourceList{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "APIResourceList"}, GroupVersion: gv,
			APIResources: []metav1.APIResource{{Name: e.kind.resource.Resource, Kind: e.kind.kind, Namespaced: true,
				Verbs: metav1.Verbs{"get", "list", "watch", "delete", "patch"}}},
		})
	case r.URL.Query().Get("watch") != "" && r.URL.Query().Get("sendInitialEvents") != "":
		respondStatus(metav1.Status{Code: http.StatusUnprocessableEntity, Reason: metav1.StatusReasonInvalid})(w, r, nil)
	case r.URL.Query().Get("watch") != "":
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	case name == e.kind.resource.Resource:
		writeJSON(w, map[string]any{"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList",
			"metadata": map[string]any{"resourceVersion": "7"}, "items": []any{e.object}})
	case name == "owner":
		writeJSON(w, e.object)
	default:
		respondStatus(metav1.Status{Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound, Details: &metav1.StatusDetails{
			Name: name, Group: e.kind.resource.Group, Kind: e.kind.resource.Resource}})(w, r, nil)
	}
}

func writeJSON(w http.ResponseWriter, value any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(value)
}

// serveAggregatedAPI runs an aggregated API server, and waits until the API server forwards requests to it.
func (w *env) serveAggregatedAPI() *aggregatedAPI {
	w.Helper()
	k := kindOf(newType())
	e := &aggregatedAPI{kind: k, object: map[string]any{
		"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
		"metadata": map[string]any{"name": "owner", "namespace": w.ns, "uid": string(refsWithUnknownUID(w.create(objectSpec{name: "some-" + k.resource.Resource}))[0].UID), "resourceVersion": "7"},
	}}
	certificate, _, err := w.cluster.ServingCertificate()
	if err != nil {
		w.Fatal(err)
	}
	server := httptest.NewUnstartedServer(e)
	server.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}}
	server.StartTLS()
	w.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	_, port, err := net.SplitHostPort(server.Listener.Addr().String())
	if err != nil {
		w.Fatal(err)
	}
	w.registerAPIService(k, port)
	return e
}

// registerAPIService makes the API server forward requests of a type's group to a local port.
func (w *env) registerAPIService(k *kind, port string) {
	w.Helper()
	number, err := strconv.Atoi(port)
	if err != nil {
		w.Fatal(err)
	}
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: k.resource.Resource}, Spec: corev1.ServiceSpec{
		Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"}}
	if _, err := kubernetes.NewForConfigOrDie(w.admin).CoreV1().Services(w.ns).Create(w.Context(), service, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
	services := aggregator.NewForConfigOrDie(w.admin).ApiregistrationV1().APIServices()
	registration := &apiregistration.APIService{ObjectMeta: metav1.ObjectMeta{Name: "v1." + k.resource.Group}, Spec: apiregistration.APIServiceSpec{
		Group: k.resource.Group, Version: "v1", InsecureSkipTLSVerify: true, GroupPriorityMinimum: 100, VersionPriority: 100,
		Service: &apiregistration.ServiceReference{Namespace: w.ns, Name: service.Name, Port: ptr.To(int32(number))},
	}}
	if _, err := services.Create(w.Context(), registration, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { w.unregisterAPIService(k) })
}

// unregisterAPIService reverts register. It may be called twice.
func (w *env) unregisterAPIService(k *kind) {
	w.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(w.Context()), timeout)
	defer cancel()
	services := aggregator.NewForConfigOrDie(w.admin).ApiregistrationV1().APIServices()
	if err := services.Delete(ctx, "v1."+k.resource.Group, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		w.Error(err)
	}
}

func (e *aggregatedAPI) owner() []metav1.OwnerReference {
	return ownerRefs(&unstructured.Unstructured{Object: map[string]any{
		"apiVersion": e.kind.resource.GroupVersion().String(), "kind": e.kind.kind, "metadata": e.object["metadata"],
	}})
}

// waitForKnown waits until the collector regards a type as served.
func (w *env) waitForKnown(k *kind) {
	w.Helper()
	eventually(w, func() error {
		if _, served := w.collector.ResourceOf(k.gvk()); !served {
			return errors.New("collector does not know the type")
		}
		return nil
	})
}

// An owner served by an aggregated API server is not absent because that
// server returns invalid responses; and other owners are not affected.
func TestAggregatedAPI_WithInvalidResponses_DeletesNothing(t *testing.T) {
	w := newEnv(t)
	for name, mood := range map[string]faultHandler{
		"404-page":     page(http.StatusNotFound, "text/plain", "404 page not found"),
		"404-status":   respondStatus(metav1.Status{Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound}),
		"200-page":     page(http.StatusOK, "text/html", "<h1>welcome</h1>"),
		"200-nothing":  page(http.StatusOK, "application/json", "{}"),
		"empty-lists":  page(http.StatusOK, "application/json", emptyList),
		"500":          internalError,
		"disconnected": droppedConnection,
	} {
		e := w.serveAggregatedAPI()
		w.waitForKnown(e.kind)
		w.auditor.addKinds(e.kind)
		before := w.create(objectSpec{name: "before-" + name, owners: e.owner()})
		w.expectKept(before)
		e.respond.Store(&mood)
		w.proxy.CutWatches(e.kind.resource.Resource)
		after := w.create(objectSpec{name: "after-" + name, owners: e.owner()})
		lost := w.create(objectSpec{name: "lost-" + name, owners: ownerRefs(&unstructured.Unstructured{Object: map[string]any{
			"apiVersion": e.kind.resource.GroupVersion().String(), "kind": e.kind.kind,
			"metadata": map[string]any{"name": "nobody", "uid": "5f1c2f7e-1f43-4a43-8d8e-0e1b6c9a0002"},
		}})})
		w.waitForKept(lost, "OwnerUnreadable")
		f := newEnvOn(t, w.testbed).createCascade(1)
		f.delete(f.owners[0], background)
		f.delete(f.owners[1], foreground)
		f.waitForDeletion(append(f.deleted, f.owners[:2]...)...)
		w.expectKept(before, after, lost)
		e.respond.Store(nil)
		w.waitForDeletion(lost) // now its owner can be read
		w.expectKept(before, after)
	}
}

// 3.7, G-04: no server responds for a group, from the start. Owners with the orphan finalizer
// wait, since a dependent could be of any type; others don't.
func TestG04_3_7_AggregatedAPI_ThatIsDown_BlocksNoOthers(t *testing.T) {
	w := newEnv(t)
	k := kindOf(newType())
	_, port, err := net.SplitHostPort(devtest.FreeAddress(t))
	if err != nil {
		t.Fatal(err)
	}
	w.registerAPIService(k, port)
	held := w.create(objectSpec{name: "held", owners: []metav1.OwnerReference{{
		APIVersion: k.resource.GroupVersion().String(), Kind: k.kind, Name: "owner", UID: "5f1c2f7e-1f43-4a43-8d8e-0e1b6c9a0003"}}})
	w.waitForKept(held, "OwnerUnreadable")
	for round := range 3 {
		f := newEnvOn(t, w.testbed).createCascade(1)
		f.delete(f.owners[0], background)
		f.delete(f.owners[1], foreground)
		f.waitForDeletion(append(f.deleted, f.owners[:2]...)...)
		f.expectKept(f.kept...)
		w.create(objectSpec{name: fmt.Sprintf("round-%d", round)})
	}
	orphaning := newEnvOn(t, w.testbed).createCascade(1)
	orphaning.delete(orphaning.owners[2], orphan)
	orphaning.waitForKept(orphaning.owners[2], "DependentsUnreadable")
	w.expectKept(held)
	w.unregisterAPIService(k)
	orphaning.waitForDeletion(orphaning.owners[2])
	for _, o := range orphaning.orphaned {
		orphaning.waitForOwners(o)
	}
}
