package deploy

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/gleaner-dev/gleaner/devcluster/devtest"
)

func TestG71_Operator_CollectsAsItsServiceAccount(t *testing.T) {
	cluster := sharedInstallation(t)
	w := newEnv(t, cluster.RESTConfig())
	canaries := w.watchCanaries()
	first := startOperator(t, cluster)
	first.waitUntilReady("/healthz", "/readyz")
	reader := w.createBoundAccount("prometheus", "gleaner-metrics-reader")

	first.waitForText("/metrics", token(t, cluster, w.ns, reader), "gleaner_writes_enabled 1")
	w.waitForLease()
	waitForCanary(t, canaries)
	w.expectCollection("first")

	second := startOperator(t, cluster)
	second.waitUntilReady("/healthz", "/readyz")
	first.stop()
	second.waitForText("/metrics", token(t, cluster, w.ns, reader), "gleaner_writes_enabled 1")
	w.expectCollection("second")

	for _, o := range []*operator{first, second} {
		if strings.Contains(strings.ToLower(o.process.Log.String()), "forbidden") {
			t.Error("a request was forbidden: see the operator's log")
		}
	}
	if _, body, err := get(t, second.metrics+"/metrics", token(t, cluster, w.ns, reader)); err != nil || strings.Contains(body, `code="403"`) {
		t.Errorf("some API calls were forbidden, or metrics are missing (%v):\n%s", err, body)
	}
}

func TestMetrics_RequireTheReaderRole(t *testing.T) {
	cluster := sharedInstallation(t)
	w := newEnv(t, cluster.RESTConfig())
	o := startOperator(t, cluster)
	o.waitUntilReady("/readyz")
	metrics := token(t, cluster, w.ns, w.createBoundAccount("metrics", "gleaner-metrics-reader"))
	debug := token(t, cluster, w.ns, w.createBoundAccount("debug", "gleaner-debug-reader"))
	unauthorized := token(t, cluster, w.ns, w.createBoundAccount("stranger", ""))
	o.waitForText("/metrics", metrics, "gleaner_graph_objects")
	o.waitForText("/debug/gc/status", debug, "{")

	for name, tc := range map[string]struct {
		path, token string
		code        int
	}{
		"no metrics without a token":                         {"/metrics", "", http.StatusUnauthorized},
		"no metrics without permission":                      {"/metrics", unauthorized, http.StatusForbidden},
		"a reader of metrics gets no graph":                  {"/debug/gc/graph", metrics, http.StatusForbidden},
		"a reader of debug gets metrics too":                 {"/metrics", debug, http.StatusOK},
		"a reader of debug gets a graph":                     {"/debug/gc/graph", debug, http.StatusOK},
		"also at the path of the built-in collector's graph": {"/debug/controllers/garbagecollector/graph", debug, http.StatusOK},
	} {
		t.Run(name, func(t *testing.T) {
			if code, body, err := get(t, o.metrics+tc.path, tc.token); err != nil || code != tc.code {
				t.Errorf("got %d (%v): %s", code, err, body)
			}
		})
	}
}

func TestG71_Operator_HasThePriorityOfTheBuiltInCollector(t *testing.T) {
	cluster := sharedInstallation(t)
	admin := kubernetes.NewForConfigOrDie(cluster.RESTConfig())
	config := &rest.Config{Host: cluster.RESTConfig().Host, BearerToken: token(t, cluster, namespace, "gleaner")}
	config.CAData = cluster.RESTConfig().CAData
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"/api/v1/configmaps": "gleaner workload-high",
		"/apis/coordination.k8s.io/v1/namespaces/" + namespace + "/leases/gleaner.dev": "gleaner-leader-election leader-election",
	} {
		devtest.Eventually(t, timeout, func() error { // the API server reads new FlowSchemas with a delay
			response, err := client.Get(config.Host + path)
			if err != nil {
				return err
			}
			defer response.Body.Close()
			if got := flowSchemaOf(t, admin, response.Header); got != want {
				return fmt.Errorf("%s is served by %s", path, got)
			}
			return nil
		})
	}
}

// flowSchemaOf returns the FlowSchema and the priority level of a response.
func flowSchemaOf(t *testing.T, admin kubernetes.Interface, header http.Header) string {
	t.Helper()
	names := map[string]string{}
	schemas, err := admin.FlowcontrolV1().FlowSchemas().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range schemas.Items {
		names[string(s.UID)] = s.Name
	}
	levels, err := admin.FlowcontrolV1().PriorityLevelConfigurations().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range levels.Items {
		names[string(l.UID)] = l.Name
	}
	return names[header.Get("X-Kubernetes-Pf-Flowschema-Uid")] + " " + names[header.Get("X-Kubernetes-Pf-Prioritylevel-Uid")]
}

// waitForLease waits until the lease has a holder.
func (w *env) waitForLease() {
	w.Helper()
	devtest.Eventually(w, timeout, func() error {
		lease, err := w.kube.CoordinationV1().Leases(namespace).Get(w.Context(), "gleaner.dev", metav1.GetOptions{})
		if err == nil && (lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity == "") {
			err = errors.New("lease has no holder")
		}
		return err
	})
}

// watchCanaries watches canaries from now on.
func (w *env) watchCanaries() watch.Interface {
	w.Helper()
	maps := w.kube.CoreV1().ConfigMaps(namespace)
	options := metav1.ListOptions{LabelSelector: "gleaner.dev/canary"}
	now, err := maps.List(w.Context(), options)
	if err != nil {
		w.Fatal(err)
	}
	options.ResourceVersion = now.ResourceVersion
	canaries, err := maps.Watch(w.Context(), options)
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(canaries.Stop)
	return canaries
}

// waitForCanary waits until a canary has been created and deleted.
func waitForCanary(t *testing.T, canaries watch.Interface) {
	t.Helper()
	for limit := time.After(timeout); ; {
		select {
		case event := <-canaries.ResultChan():
			if event.Type == watch.Deleted {
				return
			}
		case <-limit:
			t.Fatal("no canary was created and deleted")
		}
	}
}
