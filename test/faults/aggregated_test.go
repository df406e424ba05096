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
)

// extension is an aggregated API server with one object. It can be told to
// answer everything otherwise.
type extension struct {
	kind   *kind
	object map[string]any
	mood   atomic.Pointer[happening]
}

// ServeHTTP answers the API server, which has checked who asks.
func (e *extension) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if mood := e.mood.Load(); mood != nil {
		(*mood)(w, r, nil)
		return
	}
	gv := e.kind.resource.GroupVersion().String()
	name := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
	switch {
	case r.URL.Path == "/apis/"+gv:
		answerJSON(w, &metav1.APIResourceList{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "APIResourceList"}, GroupVersion: gv,
			APIResources: []metav1.APIResource{{Name: e.kind.resource.Resource, Kind: e.kind.kind, Namespaced: true,
				Verbs: metav1.Verbs{"get", "list", "watch", "delete", "patch"}}},
		})
	case r.URL.Query().Get("watch") != "" && r.URL.Query().Get("sendInitialEvents") != "":
		says(metav1.Status{Code: http.StatusUnprocessableEntity, Reason: metav1.StatusReasonInvalid})(w, r, nil)
	case r.URL.Query().Get("watch") != "":
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	case name == e.kind.resource.Resource:
		answerJSON(w, map[string]any{"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList",
			"metadata": map[string]any{"resourceVersion": "7"}, "items": []any{e.object}})
	case name == "owner":
		answerJSON(w, e.object)
	default:
		says(metav1.Status{Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound, Details: &metav1.StatusDetails{
			Name: name, Group: e.kind.resource.Group, Kind: e.kind.resource.Resource}})(w, r, nil)
	}
}

func answerJSON(w http.ResponseWriter, value any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(value)
}

// extend runs an aggregated API server, of which the cluster knows when it returns.
func (w *world) extend() *extension {
	w.Helper()
	k := kindOf(newType())
	e := &extension{kind: k, object: map[string]any{
		"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
		"metadata": map[string]any{"name": "owner", "namespace": w.ns, "uid": string(wrongUID(w.make(thing{name: "some-" + k.resource.Resource}))[0].UID), "resourceVersion": "7"},
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
	w.register(k, port)
	return e
}

// register has the API server forward a type's group to a port of this machine.
func (w *world) register(k *kind, port string) {
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
	w.Cleanup(func() { w.unregister(k) })
}

// unregister undoes register. Once is enough.
func (w *world) unregister(k *kind) {
	w.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(w.Context()), patience)
	defer cancel()
	services := aggregator.NewForConfigOrDie(w.admin).ApiregistrationV1().APIServices()
	if err := services.Delete(ctx, "v1."+k.resource.Group, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		w.Error(err)
	}
}

func (e *extension) owner() []metav1.OwnerReference {
	return owns(&unstructured.Unstructured{Object: map[string]any{
		"apiVersion": e.kind.resource.GroupVersion().String(), "kind": e.kind.kind, "metadata": e.object["metadata"],
	}})
}

// known waits until the collector takes a type to be served.
func (w *world) known(k *kind) {
	w.Helper()
	eventually(w, func() error {
		if _, served := w.collector.ResourceOf(k.gvk()); !served {
			return errors.New("the collector does not know the type")
		}
		return nil
	})
}

// An owner that an aggregated API server serves is not absent because that
// server answers with nonsense; and it holds up nobody else.
func TestAnAggregatedAPIServerThatTalksNonsenseDeletesNothing(t *testing.T) {
	w := newWorld(t)
	for name, mood := range map[string]happening{
		"404-page":     page(http.StatusNotFound, "text/plain", "404 page not found"),
		"404-status":   says(metav1.Status{Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound}),
		"200-page":     page(http.StatusOK, "text/html", "<h1>welcome</h1>"),
		"200-nothing":  page(http.StatusOK, "application/json", "{}"),
		"empty-lists":  page(http.StatusOK, "application/json", emptyList),
		"500":          broken,
		"disconnected": dropped,
	} {
		e := w.extend()
		w.known(e.kind)
		w.witness.knows(e.kind)
		before := w.make(thing{name: "before-" + name, owners: e.owner()})
		w.stays(before)
		e.mood.Store(&mood)
		w.proxy.CutWatches(e.kind.resource.Resource)
		after := w.make(thing{name: "after-" + name, owners: e.owner()})
		lost := w.make(thing{name: "lost-" + name, owners: owns(&unstructured.Unstructured{Object: map[string]any{
			"apiVersion": e.kind.resource.GroupVersion().String(), "kind": e.kind.kind,
			"metadata": map[string]any{"name": "nobody", "uid": "5f1c2f7e-1f43-4a43-8d8e-0e1b6c9a0002"},
		}})})
		w.holds(lost, "OwnerUnreadable")
		f := worldOn(t, w.stage).family(1)
		f.delete(f.owners[0], background)
		f.delete(f.owners[1], foreground)
		f.world.goes(append(f.goes, f.owners[:2]...)...)
		w.stays(before, after, lost)
		e.mood.Store(nil)
		w.goes(lost) // now it can be told
		w.stays(before, after)
	}
}

// 3.7, G-04: nobody answers for a group, from the start. What orphans waits,
// since a dependent could be of any type; nothing else does.
func TestG04_3_7_AnAggregatedAPIThatIsDownHoldsNothingElse(t *testing.T) {
	w := newWorld(t)
	k := kindOf(newType())
	_, port, err := net.SplitHostPort(freeAddress(t))
	if err != nil {
		t.Fatal(err)
	}
	w.register(k, port)
	held := w.make(thing{name: "held", owners: []metav1.OwnerReference{{
		APIVersion: k.resource.GroupVersion().String(), Kind: k.kind, Name: "owner", UID: "5f1c2f7e-1f43-4a43-8d8e-0e1b6c9a0003"}}})
	w.holds(held, "OwnerUnreadable")
	for round := range 3 {
		f := worldOn(t, w.stage).family(1)
		f.delete(f.owners[0], background)
		f.delete(f.owners[1], foreground)
		f.world.goes(append(f.goes, f.owners[:2]...)...)
		f.world.stays(f.stays...)
		w.make(thing{name: fmt.Sprintf("round-%d", round)})
	}
	orphaning := worldOn(t, w.stage).family(1)
	orphaning.delete(orphaning.owners[2], orphan)
	orphaning.holds(orphaning.owners[2], "DependentsUnreadable")
	w.stays(held)
	w.unregister(k)
	orphaning.world.goes(orphaning.owners[2])
	for _, o := range orphaning.orphan {
		orphaning.ownedBy(o)
	}
}
