package policies

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gleaner-dev/gleaner/test/pins"
)

const secret = "open-sesame-7f3a"

// fakeServer is an HTTP server for requests of modules.
type fakeServer struct {
	*httptest.Server

	mu       sync.Mutex // covers requests
	requests []string   // method, path and Authorization header
}

func newFakeServer(t *testing.T, respond func(w http.ResponseWriter, r *http.Request, n int)) *fakeServer {
	s := &fakeServer{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.requests = append(s.requests, r.Method+" "+r.URL.Path+" "+r.Header.Get("Authorization"))
		n := len(s.requests)
		s.mu.Unlock()
		respond(w, r, n)
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *fakeServer) received() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.requests...)
}

// callModule is a module that sends DELETE to the URL in its settings until the response is
// 200 or 404.
const callModule = `
answer := input.results.call.http
finalize := {"decision": "Act", "intents": [{"id": "call", "http": {"method": "DELETE", "url": input.policy.settings.url}}]} if not input.results.call
else := {"decision": "Done", "reason": sprintf("answered %d", [answer.status])} if answer.status in {200, 404}
else := {"decision": "Wait", "after": "50ms", "reason": sprintf("answered %d: %s", [answer.status, answer.body])} if answer.status
else := {"decision": "Fail", "reason": input.results.call.error.message}
`

// httpSpec returns the spec for that module.
func (w *env) httpSpec(url, grants string) string {
	w.Helper()
	w.createReader("secrets")
	w.apply(fmt.Sprintf(`
kind: Secret
metadata: {name: token}
stringData: {header: Bearer %s}`, secret))
	return fmt.Sprintf("serviceAccount: {name: reader}\nsettings: {url: %q}\ngrants:\n  http:\n%s", url, grants)
}

func grantFor(url string) string {
	return fmt.Sprintf(`  - url: %s/records/*
    methods: [DELETE]
    addresses: [127.0.0.0/8]
    headersFrom: [{header: Authorization, secretKeyRef: {name: token, key: header}}]`, url)
}

func TestModule_DoesNotSeeTheCredentialsOfItsRequests(t *testing.T) {
	w := newEnv(t)
	s := newFakeServer(t, func(rw http.ResponseWriter, r *http.Request, n int) {
		if n < 3 {
			http.Error(rw, "not yet, "+r.Header.Get("Authorization"), http.StatusInternalServerError)
		}
	})
	f := w.applyFinalizer("calls", callModule, w.httpSpec(s.URL+"/records/7", grantFor(s.URL)))
	o := w.createWithFinalizers("o", w.finalizerName("calls"))
	w.delete(o)
	w.waitForDeletion(o)
	want := "DELETE /records/7 Bearer " + secret
	if got := s.received(); len(got) != 3 || got[0] != want || got[2] != want {
		t.Errorf("got requests %q", got)
	}
	w.waitForStatus(f, "released", 1)
	received := ""
	for _, e := range w.collector.Records(o.GetUID()) {
		received += fmt.Sprintf("%+v %s\n", e, e)
	}
	events, err := w.objects.Resource(resources["Event"]).Namespace(w.ns).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events.Items {
		received += fmt.Sprintf("%v\n", e.Object)
	}
	received += fmt.Sprint(w.get(f).Object)
	if !strings.Contains(received, "answered 500: not yet") {
		t.Errorf("responses are missing in records: %s", received)
	}
	if strings.Contains(received, secret) {
		t.Errorf("secret is disclosed in %s", received)
	}
}

// stealModule reads the Secret granted to the finalizer, and sends it to a granted URL.
const stealModule = `
finalize := {"decision": "Act", "intents": [{"id": "read", "get": {"apiVersion": "v1", "kind": "Secret", "namespace": input.policy.settings.namespace, "name": "token"}}]} if not input.results.read
else := {"decision": "Act", "intents": [{"id": "send", "http": {"method": "GET", "url": concat("/", [input.policy.settings.url, input.results.read.object.data.header])}}]} if not input.results.send
else := {"decision": "Done"}
`

// Without pinned digests, a user who may edit a ClusterPolicyModule but not read Secrets
// could make an admin's ClusterFinalizer send them.
func TestEditedModule_CannotSendSecrets(t *testing.T) {
	for _, mode := range []string{"Enforce", "Monitor"} {
		t.Run(mode, func(t *testing.T) {
			w := newEnv(t)
			s := newFakeServer(t, func(http.ResponseWriter, *http.Request, int) {})
			w.createReader("secrets")
			w.apply(`{kind: Secret, metadata: {name: token}, stringData: {header: ` + secret + `}}`)
			module := w.applyPolicy("kind: ClusterPolicyModule\nmetadata: {name: NS}\nspec: {rego: {inline: " +
				quoteJSON("package gleaner\n\nfinalize := {\"decision\": \"Done\"}\n") + "}}")
			f := w.applyPolicy(fmt.Sprintf(`
kind: ClusterFinalizer
metadata: {name: NS}
spec:
  finalizer: NS.example.com/x
  resources: [{apiGroups: [""], resources: [configmaps]}]
  module: {name: NS}
  mode: %s
  settings: {url: "%[2]s", namespace: NS}
  serviceAccount: {namespace: NS, name: reader}
  grants:
    read: [{apiGroups: [""], resources: [secrets], namespaces: [NS]}]
    http: [{url: "%[2]s/*", methods: [GET], addresses: [127.0.0.0/8]}]`, mode, s.URL))
			w.waitForCondition(f, "ModuleReady", metav1.ConditionTrue, "Ready", "")
			w.patch(module, `{"spec": {"rego": {"inline": `+quoteJSON("package gleaner\n"+stealModule)+`}}}`)
			w.waitForObserved(module)
			o := w.createWithFinalizers("o", w.ns+".example.com/x")
			w.delete(o)
			stuck := w.waitForStuckOrDeleted(f, o)
			if got := s.received(); len(got) != 0 {
				t.Errorf("got requests %q", got)
			}
			w.waitForCondition(f, "ModuleReady", metav1.ConditionFalse, "DigestMismatch", "write module.digest: "+pins.Of("package gleaner\n"+stealModule))
			if stuck != "NotReady" {
				t.Errorf("object is stuck with reason %s", stuck)
			}
		})
	}
}

func TestRequest_WithoutAGrant_IsNotSent(t *testing.T) {
	w := newEnv(t)
	s := newFakeServer(t, func(http.ResponseWriter, *http.Request, int) {})
	f := w.applyFinalizer("calls", callModule, w.httpSpec(s.URL+"/admin", grantFor(s.URL)))
	o := w.createWithFinalizers("o", w.finalizerName("calls"))
	w.delete(o)
	w.waitForStuck(f, o, "Failed", "/admin")
	if got := s.received(); len(got) != 0 {
		t.Errorf("got requests %q", got)
	}
}

func TestModule_WithEndlessRounds_HasAFault(t *testing.T) {
	w := newEnv(t)
	s := newFakeServer(t, func(http.ResponseWriter, *http.Request, int) {})
	f := w.applyFinalizer("loops", `finalize := {"decision": "Act", "intents": [{"id": "call", "http": {"method": "DELETE", "url": input.policy.settings.url}}]}`,
		w.httpSpec(s.URL+"/records/7", grantFor(s.URL)))
	o := w.createWithFinalizers("o", w.finalizerName("loops"))
	w.delete(o)
	w.waitForStuck(f, o, "Fault", "it still requests intents after 16 rounds")
	w.eventually(func() error { // it is retried later, possibly right now
		if got := len(s.received()); got%16 != 0 {
			return errorf("got %d requests", got)
		}
		return nil
	})
}

func TestSlowServer_DelaysNoOtherFinalizer(t *testing.T) {
	w := newEnv(t)
	release := make(chan struct{})
	s := newFakeServer(t, func(http.ResponseWriter, *http.Request, int) { <-release })
	defer close(release)
	slow := w.applyFinalizer("slow", callModule, w.httpSpec(s.URL+"/records/7", grantFor(s.URL)))
	w.applyFinalizer("fast", doneModule, "")
	var waiting []*unstructured.Unstructured
	for i := range 30 {
		o := w.createWithFinalizers(fmt.Sprintf("slow-%d", i), w.finalizerName("slow"))
		w.delete(o)
		waiting = append(waiting, o)
	}
	w.waitForStatus(slow, "pending", 30)
	o := w.createWithFinalizers("fast", w.finalizerName("fast"))
	w.delete(o)
	w.waitForDeletion(o)
	for _, o := range waiting {
		w.waitForFinalizers(o, w.finalizerName("slow"))
	}
}

// writeModule is a module that creates a ConfigMap with parts of its request.
const writeModule = `
copy := {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "copy", "namespace": input.object.metadata.namespace},
	"data": {"key": input.idempotencyKey}}
finalize := {"decision": "Act", "intents": [{"id": "copy", "create": {"object": copy}}]} if not input.results.copy
else := {"decision": "Done"} if input.results.copy.object
else := {"decision": "Done"} if input.results.copy.error.reason == "AlreadyExists"
else := {"decision": "Fail", "reason": sprintf("%s: %s", [input.results.copy.error.reason, input.results.copy.error.message])}
`

const writing = "serviceAccount: {name: writer}\ngrants: {write: [{apiGroups: [\"\"], resources: [configmaps], verbs: [create]}]}"

// createWriter creates the service account that the module writes as.
func (w *env) createWriter(resource, verbs string) {
	w.Helper()
	w.apply(`{kind: ServiceAccount, metadata: {name: writer}}`)
	w.apply(fmt.Sprintf(`
kind: Role
metadata: {name: writer}
rules: [{apiGroups: [""], resources: [%s], verbs: [%s]}]`, resource, verbs))
	w.apply(`
kind: RoleBinding
metadata: {name: writer}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: writer}
subjects: [{kind: ServiceAccount, name: writer, namespace: NS}]`)
}

func TestModule_WritesAsItsServiceAccount(t *testing.T) {
	w := newEnv(t)
	w.createWriter("configmaps", "get, create")
	w.applyFinalizer("writes", writeModule, writing)
	o := w.createWithFinalizers("o", w.finalizerName("writes"))
	w.delete(o)
	w.waitForDeletion(o)
	copied, err := w.objects.Resource(resources["ConfigMap"]).Namespace(w.ns).Get(t.Context(), "copy", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if key, _, _ := unstructured.NestedString(copied.Object, "data", "key"); !strings.HasPrefix(key, string(o.GetUID())) {
		t.Errorf("idempotency key is %q", key)
	}
}

func TestModule_ReceivesForbidden(t *testing.T) {
	w := newEnv(t)
	w.createWriter("configmaps", "get")
	f := w.applyFinalizer("writes", writeModule, writing)
	o := w.createWithFinalizers("o", w.finalizerName("writes"))
	w.delete(o)
	w.waitForStuck(f, o, "Failed", "Forbidden: ")
}

// During deletion of a namespace, its service accounts may be deleted before its other objects.
func TestModule_ReceivesNamespaceAndAccountState(t *testing.T) {
	w := newEnv(t)
	f := w.applyFinalizer("told", `
finalize := {"decision": "Done"} if {
	input.namespaceTerminating
	input.serviceAccountMissing
} else := {"decision": "Wait", "after": "100ms", "reason": sprintf("terminating %v, missing %v", [input.namespaceTerminating, object.get(input, "serviceAccountMissing", false)])}`,
		"serviceAccount: {name: nobody}\ngrants: {read: [{apiGroups: [\"\"], resources: [configmaps]}]}")
	o := w.createWithFinalizers("o", w.finalizerName("told"))
	w.delete(o)
	w.eventually(func() error {
		for _, e := range w.collector.Records(o.GetUID()) {
			if strings.Contains(e.String(), "terminating false, missing true") {
				return nil
			}
		}
		return errorf("%s", w.describeDecisions(o))
	})
	// The Finalizer itself is in the namespace, and is evaluated until its objects are
	// gone.
	namespace := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": w.ns}}}
	live, err := w.objects.Resource(resources["Namespace"]).Get(t.Context(), w.ns, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	namespace.SetUID(live.GetUID())
	w.delete(namespace)
	w.waitForDeletion(o, f, namespace)
}

func TestInvalidGrant_IsRefusedWithTheReason(t *testing.T) {
	w := newEnv(t)
	w.createReader("secrets")
	_, err := w.tryApply(`
kind: Finalizer
metadata: {name: bad}
spec:
  resources: [{apiGroups: [""], resources: [configmaps]}]
  module: {name: m}
  serviceAccount: {name: reader}
  grants: {http: [{url: "https://user:secret@example.com/*", methods: [GET]}]}`)
	if err == nil || !strings.Contains(err.Error(), "remove the user name and password") {
		t.Errorf("got error %v", err)
	}
}

// Requests are sent from the operator's network: authors of namespaced Finalizers could
// otherwise reach addresses that network policies protect from them.
func TestFinalizer_CannotReachForbiddenNetworks(t *testing.T) {
	w := newEnv(t)
	f := w.applyFinalizer("calls", callModule, w.httpSpec("https://10.0.0.7/x", `  - {url: "https://10.0.0.7/*", methods: [DELETE], addresses: [10.0.0.0/8]}`))
	w.waitForCondition(f, "Accepted", metav1.ConditionFalse, "InvalidGrants", "by --finalizer-networks, and 10.0.0.0/8 is not within them")
	o := w.createWithFinalizers("o", w.finalizerName("calls"))
	w.delete(o)
	w.expectBlocked(o, "FinalizerNotReady")
}
