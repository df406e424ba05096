package process

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gleaner-dev/gleaner/devcluster/devtest"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/record"
)

// protectedPaths are the paths that require authorization.
var protectedPaths = []string{
	"/metrics", "/debug/gc/graph", "/debug/gc/graph?format=json", "/debug/gc/records", "/debug/gc/synced", "/debug/gc/status",
	"/debug/controllers/garbage-collector-controller/graph", "/debug/controllers/garbagecollector/graph",
}

// account is a service account with its token.
type account struct {
	*env
	name  string
	token string
}

// createAccount creates a service account without permissions.
func (w *env) createAccount(name string) account {
	w.Helper()
	accounts := w.kube.CoreV1().ServiceAccounts(w.ns)
	if _, err := accounts.Create(w.Context(), &corev1.ServiceAccount{ObjectMeta: w.objectMeta(name)}, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
	request, err := accounts.CreateToken(w.Context(), name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		w.Fatal(err)
	}
	return account{w, name, request.Status.Token}
}

// grant grants the account permissions in a namespace or, with "",
// in all.
func (a account) grant(namespace string, rule rbacv1.PolicyRule) {
	a.Helper()
	name := a.ns + "-" + a.name
	meta := metav1.ObjectMeta{Name: name}
	subjects := []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: a.ns, Name: a.name}}
	rbac := a.kube.RbacV1()
	var err error
	if namespace == "" {
		_, made := rbac.ClusterRoles().Create(a.Context(), &rbacv1.ClusterRole{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{rule}}, metav1.CreateOptions{})
		_, bound := rbac.ClusterRoleBindings().Create(a.Context(), &rbacv1.ClusterRoleBinding{
			ObjectMeta: meta, Subjects: subjects, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		}, metav1.CreateOptions{})
		err = errors.Join(made, bound)
	} else {
		_, made := rbac.Roles(namespace).Create(a.Context(), &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{rule}}, metav1.CreateOptions{})
		_, bound := rbac.RoleBindings(namespace).Create(a.Context(), &rbacv1.RoleBinding{
			ObjectMeta: meta, Subjects: subjects, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
		}, metav1.CreateOptions{})
		err = errors.Join(made, bound)
	}
	if err != nil {
		a.Fatal(err)
	}
}

// waitForPermission waits until the API server's authorizer allows a request: a client that asks
// too early would cache the response.
func (a account) waitForPermission(spec authorizationv1.SubjectAccessReviewSpec) {
	a.Helper()
	spec.User = "system:serviceaccount:" + a.ns + ":" + a.name
	devtest.Eventually(a, timeout, func() error {
		review, err := a.kube.AuthorizationV1().SubjectAccessReviews().Create(a.Context(),
			&authorizationv1.SubjectAccessReview{Spec: spec}, metav1.CreateOptions{})
		if err == nil && !review.Status.Allowed {
			err = errors.New("not granted yet")
		}
		return err
	})
}

// createReader creates an account that may read all guarded paths.
func (w *env) createReader(name string) account {
	w.Helper()
	a := w.createAccount(name)
	a.grant("", rbacv1.PolicyRule{NonResourceURLs: []string{"/metrics", "/debug/gc/*", "/debug/controllers/*"}, Verbs: []string{"get"}})
	a.waitForPermission(authorizationv1.SubjectAccessReviewSpec{
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: "/debug/gc/graph", Verb: "get"},
	})
	return a
}

// createGetter creates a reader that may get one resource in one namespace.
func (w *env) createGetter(name, namespace, resource string) account {
	w.Helper()
	a := w.createReader(name)
	a.grant(namespace, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{resource}, Verbs: []string{"get"}})
	a.waitForPermission(authorizationv1.SubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: namespace, Resource: resource, Name: "any", Verb: "get"},
	})
	return a
}

// authHeader returns the account's Authorization header.
func (a account) authHeader() []string { return []string{"Authorization", "Bearer " + a.token} }

func TestAuthorization_RefusesUnauthenticatedClients(t *testing.T) {
	g := startReady(t, devtest.Shared(t), "--insecure-debug=false")
	for _, path := range protectedPaths {
		for name, headers := range map[string][]string{
			"without a token":         nil,
			"with a made up token":    {"Authorization", "Bearer made-up"},
			"with no bearer token":    {"Authorization", "Basic YWRtaW46YWRtaW4="},
			"with an identity header": {"X-Remote-User", "admin"},
		} {
			if got := g.get(path, headers...); got.code != http.StatusUnauthorized {
				t.Errorf("%s %s: got %d: %s", path, name, got.code, got.body)
			}
		}
	}
}

func TestAuthorization_RequiresPermissionForThePath(t *testing.T) {
	w := newEnv(t, devtest.Shared(t))
	g := startReady(t, devtest.Shared(t), "--insecure-debug=false")
	unauthorized := w.createAccount("stranger")
	for _, path := range protectedPaths {
		url, _, _ := strings.Cut(path, "?")
		got := g.get(path, unauthorized.authHeader()...)
		if got.code != http.StatusForbidden || !strings.Contains(got.body, `the verb "get" on the nonResourceURL "`+url+`"`) {
			t.Errorf("%s: got %d: %s", path, got.code, got.body)
		}
	}
}

func TestAuthorization_ForThePath_ShowsNoObjects(t *testing.T) {
	w := newEnv(t, devtest.Shared(t))
	g := startReady(t, devtest.Shared(t), "--insecure-debug=false")
	w.waitForDeletion(w.createOrphan("dependent"))
	reader := w.createReader("reader")
	for _, path := range protectedPaths {
		if got := g.get(path, reader.authHeader()...); got.code != http.StatusOK {
			t.Errorf("%s: got %d: %s", path, got.code, got.body)
		}
	}
	if dump := decode[graph.Dump](t, g.get("/debug/gc/graph?format=json", reader.authHeader()...)); len(dump.Nodes) != 0 {
		t.Errorf("graph shows %v", dumpNames(dump))
	}
	if records := g.records("", reader.authHeader()...); len(records) != 0 {
		t.Errorf("records show %v", records)
	}
}

func TestAuthorization_FiltersTheGraph(t *testing.T) {
	mine, other := newEnv(t, devtest.Shared(t)), newEnv(t, devtest.Shared(t))
	g := startReady(t, devtest.Shared(t), "--insecure-debug=false")
	client := mine.createGetter("getter", mine.ns, "configmaps")
	owner := mine.create("owner")
	mine.createSecret("secret", owner)
	dependent := mine.create("dependent", owner)
	hidden := other.create("hidden", other.create("hidden-owner"))
	var dump graph.Dump
	devtest.Eventually(t, timeout, func() error {
		dump = decode[graph.Dump](t, g.get("/debug/gc/graph?format=json", client.authHeader()...))
		if len(dump.Nodes) < 2 {
			return errors.New("graph does not have the objects yet")
		}
		return nil
	})
	compareNames(t, dumpNames(dump), "owner", "dependent")
	if diff := cmp.Diff([]graph.DumpEdge{{Dependent: dependent.UID, Owner: owner.UID}}, dump.Edges); diff != "" {
		t.Error(diff)
	}
	dot := g.get("/debug/gc/graph", client.authHeader()...).body
	for _, name := range []string{"hidden", "secret"} {
		if strings.Contains(dot, name) {
			t.Errorf("DOT shows %q", name)
		}
	}
	there, nowhere := g.get("/debug/gc/graph?uid="+string(hidden.UID), client.authHeader()...), g.get("/debug/gc/graph?uid=nowhere", client.authHeader()...)
	if there.code != nowhere.code {
		t.Errorf("a hidden object returns %d and a missing one %d, which discloses that it exists", there.code, nowhere.code)
	}
}

// The reviews of 300 objects fit into the time that a request has for them, which they would
// not at the rate to which client-go limits a client by default. Otherwise a header warns of it.
func TestAuthorization_OfManyObjects_IsFast(t *testing.T) {
	w := newEnv(t, devtest.Shared(t))
	g := startReady(t, devtest.Shared(t), "--insecure-debug=false")
	reader := w.createReader("reader")
	w.createMany("dependent-", 300, w.create("owner"))
	got := g.get("/debug/gc/graph", reader.authHeader()...)
	if warning := got.header.Get("Warning"); got.code != http.StatusOK || warning != "" {
		t.Errorf("got %d, warning %q: %s", got.code, warning, got.body)
	}
}

func TestAuthorization_FiltersRecords(t *testing.T) {
	mine, other := newEnv(t, devtest.Shared(t)), newEnv(t, devtest.Shared(t))
	g := startReady(t, devtest.Shared(t), "--insecure-debug=false")
	maps := mine.createGetter("maps", mine.ns, "configmaps")
	secrets := mine.createGetter("secrets", mine.ns, "secrets")
	owner := mine.create("owner")
	secret := mine.createSecret("secret", owner)
	mine.delete(owner)
	dependent := mine.createOrphan("dependent")
	hidden := other.createOrphan("hidden")
	mine.waitForDeletion(dependent)
	other.waitForDeletion(hidden)
	devtest.Eventually(t, timeout, func() error {
		if len(g.records("", maps.authHeader()...)) == 0 || len(g.records("", secrets.authHeader()...)) == 0 {
			return errors.New("no records yet")
		}
		return nil
	})
	done := func(shown []record.Entry) []record.Entry { // without those from before the policies were loaded
		return slices.DeleteFunc(shown, func(e record.Entry) bool { return e.Action == record.None })
	}
	shown := done(g.records("", maps.authHeader()...))
	if len(shown) != 1 || shown[0].Object.UID != dependent.UID || len(shown[0].Chain) != 1 {
		t.Errorf("with get on ConfigMaps: %+v", shown)
	}
	shown = done(g.records("", secrets.authHeader()...))
	if len(shown) != 1 || shown[0].Object.UID != secret.UID || len(shown[0].Owners) != 0 || len(shown[0].Chain) != 0 {
		t.Errorf("with get on Secrets: %+v", shown)
	}
	if shown := g.records(hidden.UID, maps.authHeader()...); len(shown) != 0 {
		t.Errorf("without permission: %+v", shown)
	}
}
