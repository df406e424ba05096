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

// site is an HTTP server that a module talks to.
type site struct {
	*httptest.Server

	mu       sync.Mutex // covers requests
	requests []string   // method, path and the header Authorization
}

func newSite(t *testing.T, answer func(w http.ResponseWriter, r *http.Request, n int)) *site {
	s := &site{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.requests = append(s.requests, r.Method+" "+r.URL.Path+" "+r.Header.Get("Authorization"))
		n := len(s.requests)
		s.mu.Unlock()
		answer(w, r, n)
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *site) asked() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.requests...)
}

// calls is a module that sends DELETE to where the settings say until the answer is
// 200 or 404.
const calls = `
answer := input.results.call.http
finalize := {"decision": "Act", "intents": [{"id": "call", "http": {"method": "DELETE", "url": input.policy.settings.url}}]} if not input.results.call
else := {"decision": "Done", "reason": sprintf("answered %d", [answer.status])} if answer.status in {200, 404}
else := {"decision": "Wait", "after": "50ms", "reason": sprintf("answered %d: %s", [answer.status, answer.body])} if answer.status
else := {"decision": "Fail", "reason": input.results.call.error.message}
`

// calling is the spec that goes with it.
func (w *world) calling(url, grants string) string {
	w.Helper()
	w.reader("secrets")
	w.apply(fmt.Sprintf(`
kind: Secret
metadata: {name: token}
stringData: {header: Bearer %s}`, secret))
	return fmt.Sprintf("serviceAccount: {name: reader}\nsettings: {url: %q}\ngrants:\n  http:\n%s", url, grants)
}

func granting(url string) string {
	return fmt.Sprintf(`  - url: %s/records/*
    methods: [DELETE]
    addresses: [127.0.0.0/8]
    headersFrom: [{header: Authorization, secretKeyRef: {name: token, key: header}}]`, url)
}

func TestAModuleCallsAServerWithCredentialsThatItNeverSees(t *testing.T) {
	w := newWorld(t)
	s := newSite(t, func(rw http.ResponseWriter, r *http.Request, n int) {
		if n < 3 {
			http.Error(rw, "not yet, "+r.Header.Get("Authorization"), http.StatusInternalServerError)
		}
	})
	f := w.finalizer("calls", calls, w.calling(s.URL+"/records/7", granting(s.URL)))
	o := w.carrying("o", w.entry("calls"))
	w.delete(o)
	w.goes(o)
	want := "DELETE /records/7 Bearer " + secret
	if got := s.asked(); len(got) != 3 || got[0] != want || got[2] != want {
		t.Errorf("asked %q", got)
	}
	w.status(f, "released", 1)
	told := ""
	for _, e := range w.collector.Records(o.GetUID()) {
		told += fmt.Sprintf("%+v %s\n", e, e)
	}
	events, err := w.objects.Resource(resources["Event"]).Namespace(w.ns).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events.Items {
		told += fmt.Sprintf("%v\n", e.Object)
	}
	told += fmt.Sprint(w.get(f).Object)
	if !strings.Contains(told, "answered 500: not yet") {
		t.Errorf("nothing is told of the answers: %s", told)
	}
	if strings.Contains(told, secret) {
		t.Errorf("the secret is told in %s", told)
	}
}

// steals reads the Secret that the finalizer may read, and sends it where it may send to.
const steals = `
finalize := {"decision": "Act", "intents": [{"id": "read", "get": {"apiVersion": "v1", "kind": "Secret", "namespace": input.policy.settings.namespace, "name": "token"}}]} if not input.results.read
else := {"decision": "Act", "intents": [{"id": "send", "http": {"method": "GET", "url": concat("/", [input.policy.settings.url, input.results.read.object.data.header])}}]} if not input.results.send
else := {"decision": "Done"}
`

// Whoever may edit a ClusterPolicyModule, and read no Secrets, could have had an admin's
// ClusterFinalizer send them.
func TestAnEditedModuleSendsNoSecretThatAnAdminsFinalizerMayRead(t *testing.T) {
	for _, mode := range []string{"Enforce", "Monitor"} {
		t.Run(mode, func(t *testing.T) {
			w := newWorld(t)
			s := newSite(t, func(http.ResponseWriter, *http.Request, int) {})
			w.reader("secrets")
			w.apply(`{kind: Secret, metadata: {name: token}, stringData: {header: ` + secret + `}}`)
			module := w.policy("kind: ClusterPolicyModule\nmetadata: {name: NS}\nspec: {rego: {inline: " +
				quoted("package gleaner\n\nfinalize := {\"decision\": \"Done\"}\n") + "}}")
			f := w.policy(fmt.Sprintf(`
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
			w.says(f, "ModuleReady", metav1.ConditionTrue, "Ready", "")
			w.patch(module, `{"spec": {"rego": {"inline": `+quoted("package gleaner\n"+steals)+`}}}`)
			w.policyObserved(module)
			o := w.carrying("o", w.ns+".example.com/x")
			w.delete(o)
			stuck := w.stuckSomehow(f, o)
			if got := s.asked(); len(got) != 0 {
				t.Errorf("it has sent %q", got)
			}
			w.says(f, "ModuleReady", metav1.ConditionFalse, "DigestMismatch", "write module.digest: "+pins.Of("package gleaner\n"+steals))
			if stuck != "NotReady" {
				t.Errorf("the object is stuck for %s", stuck)
			}
		})
	}
}

func TestWhatIsNotGrantedIsNotSent(t *testing.T) {
	w := newWorld(t)
	s := newSite(t, func(http.ResponseWriter, *http.Request, int) {})
	f := w.finalizer("calls", calls, w.calling(s.URL+"/admin", granting(s.URL)))
	o := w.carrying("o", w.entry("calls"))
	w.delete(o)
	w.stuck(f, o, "Failed", "/admin")
	if got := s.asked(); len(got) != 0 {
		t.Errorf("asked %q", got)
	}
}

func TestAModuleThatAsksForEverIsAtFault(t *testing.T) {
	w := newWorld(t)
	s := newSite(t, func(http.ResponseWriter, *http.Request, int) {})
	f := w.finalizer("loops", `finalize := {"decision": "Act", "intents": [{"id": "call", "http": {"method": "DELETE", "url": input.policy.settings.url}}]}`,
		w.calling(s.URL+"/records/7", granting(s.URL)))
	o := w.carrying("o", w.entry("loops"))
	w.delete(o)
	w.stuck(f, o, "Fault", "after 16 rounds it still asks for more")
	w.eventually(func() error { // it is asked again later, and may be at that just now
		if got := len(s.asked()); got%16 != 0 {
			return errorf("asked %d times", got)
		}
		return nil
	})
}

func TestASlowServerDelaysNoOtherFinalizer(t *testing.T) {
	w := newWorld(t)
	release := make(chan struct{})
	s := newSite(t, func(http.ResponseWriter, *http.Request, int) { <-release })
	defer close(release)
	slow := w.finalizer("slow", calls, w.calling(s.URL+"/records/7", granting(s.URL)))
	w.finalizer("fast", done, "")
	var waiting []*unstructured.Unstructured
	for i := range 30 {
		o := w.carrying(fmt.Sprintf("slow-%d", i), w.entry("slow"))
		w.delete(o)
		waiting = append(waiting, o)
	}
	w.status(slow, "pending", 30)
	o := w.carrying("fast", w.entry("fast"))
	w.delete(o)
	w.goes(o)
	for _, o := range waiting {
		w.carries(o, w.entry("slow"))
	}
}

// writes is a module that leaves a ConfigMap behind, with what it was told.
const writes = `
copy := {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "copy", "namespace": input.object.metadata.namespace},
	"data": {"key": input.idempotencyKey}}
finalize := {"decision": "Act", "intents": [{"id": "copy", "create": {"object": copy}}]} if not input.results.copy
else := {"decision": "Done"} if input.results.copy.object
else := {"decision": "Done"} if input.results.copy.error.reason == "AlreadyExists"
else := {"decision": "Fail", "reason": sprintf("%s: %s", [input.results.copy.error.reason, input.results.copy.error.message])}
`

const writing = "serviceAccount: {name: writer}\ngrants: {write: [{apiGroups: [\"\"], resources: [configmaps], verbs: [create]}]}"

// writer makes the service account that it writes as.
func (w *world) writer(verbs string) {
	w.Helper()
	w.apply(`{kind: ServiceAccount, metadata: {name: writer}}`)
	w.apply(fmt.Sprintf(`
kind: Role
metadata: {name: writer}
rules: [{apiGroups: [""], resources: [configmaps], verbs: [%s]}]`, verbs))
	w.apply(`
kind: RoleBinding
metadata: {name: writer}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: writer}
subjects: [{kind: ServiceAccount, name: writer, namespace: NS}]`)
}

func TestAModuleWritesAsItsServiceAccount(t *testing.T) {
	w := newWorld(t)
	w.writer("get, create")
	w.finalizer("writes", writes, writing)
	o := w.carrying("o", w.entry("writes"))
	w.delete(o)
	w.goes(o)
	copied, err := w.objects.Resource(resources["ConfigMap"]).Namespace(w.ns).Get(t.Context(), "copy", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if key, _, _ := unstructured.NestedString(copied.Object, "data", "key"); !strings.HasPrefix(key, string(o.GetUID())) {
		t.Errorf("the key is %q", key)
	}
}

func TestWhatTheServiceAccountMayNotIsTheAPIServersAnswer(t *testing.T) {
	w := newWorld(t)
	w.writer("get")
	f := w.finalizer("writes", writes, writing)
	o := w.carrying("o", w.entry("writes"))
	w.delete(o)
	w.stuck(f, o, "Failed", "Forbidden: ")
}

// A namespace takes its service accounts along before its objects are gone.
func TestATerminatingNamespaceAndAMissingServiceAccountAreTold(t *testing.T) {
	w := newWorld(t)
	f := w.finalizer("told", `
finalize := {"decision": "Done"} if {
	input.namespaceTerminating
	input.serviceAccountMissing
} else := {"decision": "Wait", "after": "100ms", "reason": sprintf("terminating %v, missing %v", [input.namespaceTerminating, object.get(input, "serviceAccountMissing", false)])}`,
		"serviceAccount: {name: nobody}\ngrants: {read: [{apiGroups: [\"\"], resources: [configmaps]}]}")
	o := w.carrying("o", w.entry("told"))
	w.delete(o)
	w.eventually(func() error {
		for _, e := range w.collector.Records(o.GetUID()) {
			if strings.Contains(e.String(), "terminating false, missing true") {
				return nil
			}
		}
		return errorf("%s", w.decisions(o))
	})
	// The Finalizer itself is in the namespace, and goes on serving until its objects
	// are gone.
	namespace := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": w.ns}}}
	live, err := w.objects.Resource(resources["Namespace"]).Get(t.Context(), w.ns, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	namespace.SetUID(live.GetUID())
	w.delete(namespace)
	w.goes(o, f, namespace)
}

func TestAGrantThatMakesNoSenseIsRefusedWithTheReason(t *testing.T) {
	w := newWorld(t)
	w.reader("secrets")
	_, err := w.tryApply(`
kind: Finalizer
metadata: {name: bad}
spec:
  resources: [{apiGroups: [""], resources: [configmaps]}]
  module: {name: m}
  serviceAccount: {name: reader}
  grants: {http: [{url: "https://user:secret@example.com/*", methods: [GET]}]}`)
	if err == nil || !strings.Contains(err.Error(), "leave the user name and the password out") {
		t.Errorf("answered: %v", err)
	}
}

// Requests go out from where the operator is: who may write Finalizers in a namespace
// could reach what the network keeps from them.
func TestAFinalizerOfANamespaceReachesNoNetworkThatTheOperatorDoesNotAllow(t *testing.T) {
	w := newWorld(t)
	f := w.finalizer("calls", calls, w.calling("https://10.0.0.7/x", `  - {url: "https://10.0.0.7/*", methods: [DELETE], addresses: [10.0.0.0/8]}`))
	w.says(f, "Accepted", metav1.ConditionFalse, "InvalidGrants", "by --finalizer-networks, and 10.0.0.0/8 is not within them")
	o := w.carrying("o", w.entry("calls"))
	w.delete(o)
	w.kept(o, "FinalizerNotReady")
}
