// Package intents tests intents against a real API server, with the RBAC permissions
// of service accounts.
package intents

import (
	"bytes"
	"fmt"
	"log"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/gleaner-dev/gleaner/devcluster"
	"github.com/gleaner-dev/gleaner/devcluster/devtest"
	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/catalog"
	"github.com/gleaner-dev/gleaner/operator/intents"
	"github.com/gleaner-dev/gleaner/policies"
)

const timeout = time.Minute

func TestMain(m *testing.M) { devtest.Run(m, devcluster.Options{NoControllerManager: true}) }

// env is a test's namespace with a service account.
type env struct {
	*testing.T
	client kubernetes.Interface // with admin rights
	do     *intents.Executor
	ns     string
	on     intents.Identity

	*state
}

// state is the clock and the log of an Executor under test.
type state struct {
	mu  sync.Mutex // covers the fields below
	now time.Time
	out bytes.Buffer // all logs
}

// newEnv creates a service account with permissions: each entry is a resource of the core
// group followed by verbs.
func newEnv(t *testing.T, rights ...string) *env {
	t.Helper()
	cluster := devtest.Shared(t)
	admin := kubernetes.NewForConfigOrDie(cluster.RESTConfig())
	// This user may only impersonate.
	config, err := cluster.ConfigFor("impersonator")
	if err != nil {
		t.Fatal(err)
	}
	w := &env{T: t, client: admin, ns: devtest.Namespace(t, cluster.RESTConfig()), state: &state{now: time.Now()}}
	w.allowImpersonation()
	w.createAccount("worker", rights...)
	w.on = intents.Identity{
		Namespace: w.ns, Name: "Finalizer " + w.ns + "/test", Account: policies.ServiceAccount{Namespace: w.ns, Name: "worker"},
	}
	groups, lists, err := admin.Discovery().ServerGroupsAndResources()
	if err != nil {
		t.Fatal(err)
	}
	types := catalog.Build(groups, lists, catalog.Settings{})
	w.do = intents.New(intents.Options{
		Config: config, Catalog: func() *catalog.Catalog { return types }, Now: w.clock, Resolver: noDNS, ReuseConnections: true,
		Log: funcr.New(func(prefix, args string) { w.record(prefix + args) }, funcr.Options{Verbosity: 10}),
	})
	log.SetOutput(intents.WithoutServerData(writerFunc(w.record))) // net/http logs there
	t.Cleanup(func() { log.SetOutput(os.Stderr) })
	return w
}

type writerFunc func(string)

func (w writerFunc) Write(p []byte) (int, error) {
	w(string(p))
	return len(p), nil
}

func (s *state) record(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.out.WriteString(line + "\n")
}

func (s *state) logged() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.out.String()
}

func (s *state) clock() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now
}

func (s *state) advance(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = s.now.Add(d)
}

// allowImpersonation allows the user of that name only to impersonate service accounts.
func (w *env) allowImpersonation() {
	w.Helper()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "impersonator"}, Rules: []rbacv1.PolicyRule{
		{Verbs: []string{"impersonate"}, APIGroups: []string{""}, Resources: []string{"serviceaccounts"}},
	}}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "impersonator"}, RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "impersonator"},
		Subjects: []rbacv1.Subject{{Kind: "User", APIGroup: "rbac.authorization.k8s.io", Name: "impersonator"}},
	}
	_, err := w.client.RbacV1().ClusterRoles().Create(w.Context(), role, metav1.CreateOptions{})
	w.must(ignore(err, apierrors.IsAlreadyExists))
	_, err = w.client.RbacV1().ClusterRoleBindings().Create(w.Context(), binding, metav1.CreateOptions{})
	w.must(ignore(err, apierrors.IsAlreadyExists))
}

func ignore(err error, is func(error) bool) error {
	if is(err) {
		return nil
	}
	return err
}

func (w *env) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// createAccount creates a service account, and waits until its permissions are effective.
func (w *env) createAccount(name string, rights ...string) {
	w.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{
		{Verbs: []string{"list"}, APIGroups: []string{""}, Resources: []string{"podtemplates"}}, // checked below to detect that the permissions are effective
	}}
	for _, right := range rights {
		resource, verbs, _ := strings.Cut(right, " ")
		role.Rules = append(role.Rules, rbacv1.PolicyRule{Verbs: strings.Fields(verbs), APIGroups: []string{""}, Resources: []string{resource}})
	}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: rbacv1.RoleRef{Kind: "Role", Name: name},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: w.ns, Name: name}},
	}
	_, err := w.client.CoreV1().ServiceAccounts(w.ns).Create(w.Context(), account, metav1.CreateOptions{})
	w.must(err)
	_, err = w.client.RbacV1().Roles(w.ns).Create(w.Context(), role, metav1.CreateOptions{})
	w.must(err)
	_, err = w.client.RbacV1().RoleBindings(w.ns).Create(w.Context(), binding, metav1.CreateOptions{})
	w.must(err)
	config, err := devtest.Shared(w).ConfigFor("impersonator")
	w.must(err)
	config.Impersonate.UserName = "system:serviceaccount:" + w.ns + ":" + name
	as := kubernetes.NewForConfigOrDie(config)
	devtest.Eventually(w, timeout, func() error {
		_, err := as.CoreV1().PodTemplates(w.ns).List(w.Context(), metav1.ListOptions{})
		return err
	})
}

// grantRead and writes add grants for resources of the core group in the test's namespace.
func (w *env) grantRead(resources ...string) {
	w.on.Grants.Read = append(w.on.Grants.Read, policies.ReadRule{
		Rule: policies.Rule{Groups: []string{""}, Resources: resources}, Namespaces: []string{w.ns},
	})
}

func (w *env) grantWrite(resource string, verbs ...policies.Verb) {
	w.on.Grants.Write = append(w.on.Grants.Write, policies.WriteRule{
		ReadRule: policies.ReadRule{Rule: policies.Rule{Groups: []string{""}, Resources: []string{resource}}, Namespaces: []string{w.ns}}, Verbs: verbs,
	})
}

func (w *env) createConfigMap(name string, data map[string]string) *corev1.ConfigMap {
	w.Helper()
	made, err := w.client.CoreV1().ConfigMaps(w.ns).Create(w.Context(),
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: data}, metav1.CreateOptions{FieldManager: "somebody"})
	w.must(err)
	return made
}

func (w *env) createSecret(name string, data map[string]string) {
	w.Helper()
	_, err := w.client.CoreV1().Secrets(w.ns).Create(w.Context(),
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, StringData: data}, metav1.CreateOptions{})
	w.must(err)
}

// secretKey returns a reference to an entry of a Secret or a ConfigMap.
func (w *env) secretKey(name, key string) policies.SecretKey {
	return policies.SecretKey{NamespacedName: types.NamespacedName{Namespace: w.ns, Name: name}, Key: key}
}

func (w *env) target(name string) hostabi.Target {
	return hostabi.Target{APIVersion: "v1", Kind: "ConfigMap", Namespace: w.ns, Name: name}
}

// execute executes one intent.
func (w *env) execute(intent hostabi.Intent) hostabi.Result {
	w.Helper()
	intent.ID = "a"
	return w.do.Do(w.Context(), w.on, intent)
}

// expectError checks that a result has this error.
func (w *env) expectError(r hostabi.Result, reason hostabi.ErrorReason, words ...string) {
	w.Helper()
	if r.Error == nil || r.Error.Reason != reason {
		w.Errorf("got %s, want %s", describe(r), reason)
		return
	}
	for _, word := range words {
		if !strings.Contains(r.Error.Message, word) {
			w.Errorf("no %q in %q", word, r.Error.Message)
		}
	}
}

func describe(r hostabi.Result) string {
	switch {
	case r.Error != nil:
		return fmt.Sprintf("%s: %s", r.Error.Reason, r.Error.Message)
	case r.HTTP != nil:
		return fmt.Sprintf("%d %.300q %v", r.HTTP.Status, r.HTTP.Body, slices.Sorted(maps.Keys(r.HTTP.Headers)))
	case r.Object != nil:
		return fmt.Sprintf("%.300s", r.Object.Body)
	}
	return fmt.Sprintf("%+v", r)
}
