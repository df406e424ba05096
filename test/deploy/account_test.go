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

func TestG71_ItCollectsAsItsServiceAccountAndIsForbiddenNothing(t *testing.T) {
	cluster := installed(t)
	w := newWorld(t, cluster.RESTConfig())
	canaries := w.watchCanaries()
	first := startOperator(t, cluster)
	first.ready("/healthz", "/readyz")
	reader := w.bound("prometheus", "gleaner-metrics-reader")

	first.says("/metrics", token(t, cluster, w.ns, reader), "gleaner_writes_enabled 1")
	w.holdsTheLease()
	comeAndGo(t, canaries)
	w.collects("first")

	second := startOperator(t, cluster)
	second.ready("/healthz", "/readyz")
	first.stop()
	second.says("/metrics", token(t, cluster, w.ns, reader), "gleaner_writes_enabled 1")
	w.collects("second")

	for _, o := range []*operator{first, second} {
		if strings.Contains(strings.ToLower(o.log.String()), "forbidden") {
			t.Error("something is forbidden: see its log")
		}
	}
	if _, body, err := get(t, second.metrics+"/metrics", token(t, cluster, w.ns, reader)); err != nil || strings.Contains(body, `code="403"`) {
		t.Errorf("calls of the API server are answered with 403, or there are no metrics (%v):\n%s", err, body)
	}
}

func TestMetrics_AreForWhomTheReadersRoleIsBoundTo(t *testing.T) {
	cluster := installed(t)
	w := newWorld(t, cluster.RESTConfig())
	o := startOperator(t, cluster)
	o.ready("/readyz")
	metrics := token(t, cluster, w.ns, w.bound("metrics", "gleaner-metrics-reader"))
	debug := token(t, cluster, w.ns, w.bound("debug", "gleaner-debug-reader"))
	stranger := token(t, cluster, w.ns, w.bound("stranger", ""))
	o.says("/metrics", metrics, "gleaner_graph_objects")
	o.says("/debug/gc/status", debug, "{")

	for name, tc := range map[string]struct {
		path, token string
		code        int
	}{
		"nobody gets metrics":                {"/metrics", "", http.StatusUnauthorized},
		"a stranger gets no metrics":         {"/metrics", stranger, http.StatusForbidden},
		"a reader of metrics gets no graph":  {"/debug/gc/graph", metrics, http.StatusForbidden},
		"a reader of debug gets metrics too": {"/metrics", debug, http.StatusOK},
		"a reader of debug gets a graph":     {"/debug/gc/graph", debug, http.StatusOK},
		"at the path of other tools, too":    {"/debug/controllers/garbagecollector/graph", debug, http.StatusOK},
	} {
		t.Run(name, func(t *testing.T) {
			if code, body, err := get(t, o.metrics+tc.path, tc.token); err != nil || code != tc.code {
				t.Errorf("answers %d (%v): %s", code, err, body)
			}
		})
	}
}

func TestG71_ItIsServedAtThePriorityOfTheBuiltInCollector(t *testing.T) {
	cluster := installed(t)
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
		devtest.Eventually(t, patience, func() error { // the API server takes up what is new a little later
			response, err := client.Get(config.Host + path)
			if err != nil {
				return err
			}
			defer response.Body.Close()
			if got := served(t, admin, response.Header); got != want {
				return fmt.Errorf("%s is served by %s", path, got)
			}
			return nil
		})
	}
}

// served names the FlowSchema and the priority level of an answer.
func served(t *testing.T, admin kubernetes.Interface, header http.Header) string {
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

// holdsTheLease waits until somebody does.
func (w *world) holdsTheLease() {
	w.Helper()
	devtest.Eventually(w, patience, func() error {
		lease, err := w.kube.CoordinationV1().Leases(namespace).Get(w.Context(), "gleaner.dev", metav1.GetOptions{})
		if err == nil && (lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity == "") {
			err = errors.New("nobody holds the lease")
		}
		return err
	})
}

// watchCanaries shows the canaries that are let out from now on.
func (w *world) watchCanaries() watch.Interface {
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

// comeAndGo waits until a canary has been let out and taken in.
func comeAndGo(t *testing.T, canaries watch.Interface) {
	t.Helper()
	for limit := time.After(patience); ; {
		select {
		case event := <-canaries.ResultChan():
			if event.Type == watch.Deleted {
				return
			}
		case <-limit:
			t.Fatal("no canary has come and gone")
		}
	}
}
