package process

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

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

// guarded are the paths that are served to those alone who may read them.
var guarded = []string{
	"/metrics", "/debug/gc/graph", "/debug/gc/graph?format=json", "/debug/gc/records", "/debug/gc/synced", "/debug/gc/status",
	"/debug/controllers/garbage-collector-controller/graph", "/debug/controllers/garbagecollector/graph",
}

// account is a service account with its token.
type account struct {
	*world
	name  string
	token string
}

// account makes a service account that may do nothing.
func (w *world) account(name string) account {
	w.Helper()
	accounts := w.kube.CoreV1().ServiceAccounts(w.ns)
	if _, err := accounts.Create(w.Context(), &corev1.ServiceAccount{ObjectMeta: w.meta(name)}, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
	request, err := accounts.CreateToken(w.Context(), name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		w.Fatal(err)
	}
	return account{w, name, request.Status.Token}
}

// may lets the account do what a rule says, in a namespace or, with "",
// everywhere.
func (a account) may(namespace string, rule rbacv1.PolicyRule) {
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

// granted waits until the API server knows of a right: an answer that came too
// early would be kept by whoever asked for it.
func (a account) granted(spec authorizationv1.SubjectAccessReviewSpec) {
	a.Helper()
	spec.User = "system:serviceaccount:" + a.ns + ":" + a.name
	devtest.Eventually(a, patience, func() error {
		review, err := a.kube.AuthorizationV1().SubjectAccessReviews().Create(a.Context(),
			&authorizationv1.SubjectAccessReview{Spec: spec}, metav1.CreateOptions{})
		if err == nil && !review.Status.Allowed {
			err = errors.New("not granted yet")
		}
		return err
	})
}

// reader makes an account that may read all guarded paths.
func (w *world) reader(name string) account {
	w.Helper()
	a := w.account(name)
	a.may("", rbacv1.PolicyRule{NonResourceURLs: []string{"/metrics", "/debug/gc/*", "/debug/controllers/*"}, Verbs: []string{"get"}})
	a.granted(authorizationv1.SubjectAccessReviewSpec{
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: "/debug/gc/graph", Verb: "get"},
	})
	return a
}

// getter makes a reader that may get one resource in one namespace.
func (w *world) getter(name, namespace, resource string) account {
	w.Helper()
	a := w.reader(name)
	a.may(namespace, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{resource}, Verbs: []string{"get"}})
	a.granted(authorizationv1.SubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: namespace, Resource: resource, Name: "any", Verb: "get"},
	})
	return a
}

// bearer returns the header that the account is known by.
func (a account) bearer() []string { return []string{"Authorization", "Bearer " + a.token} }

func TestGuard_LetsNobodyInWhomTheClusterDoesNotKnow(t *testing.T) {
	g := running(t, sharedCluster(t), "--insecure-debug=false")
	for _, path := range guarded {
		for name, headers := range map[string][]string{
			"without a token":       nil,
			"with a made up token":  {"Authorization", "Bearer made-up"},
			"with no bearer token":  {"Authorization", "Basic YWRtaW46YWRtaW4="},
			"with a claimed header": {"X-Remote-User", "admin"},
		} {
			if got := g.get(path, headers...); got.code != http.StatusUnauthorized {
				t.Errorf("%s %s answers %d: %s", path, name, got.code, got.body)
			}
		}
	}
}

func TestGuard_LetsNobodyInWhoMayNotReadThePath(t *testing.T) {
	w := newWorld(t, sharedCluster(t))
	g := running(t, sharedCluster(t), "--insecure-debug=false")
	stranger := w.account("stranger")
	for _, path := range guarded {
		url, _, _ := strings.Cut(path, "?")
		got := g.get(path, stranger.bearer()...)
		if got.code != http.StatusForbidden || !strings.Contains(got.body, `the verb "get" on the nonResourceURL "`+url+`"`) {
			t.Errorf("%s answers %d: %s", path, got.code, got.body)
		}
	}
}

func TestGuard_LetsInWhoMayReadThePathAndShowsNoObjects(t *testing.T) {
	w := newWorld(t, sharedCluster(t))
	g := running(t, sharedCluster(t), "--insecure-debug=false")
	w.goes(w.orphaned("dependent"))
	reader := w.reader("reader")
	for _, path := range guarded {
		if got := g.get(path, reader.bearer()...); got.code != http.StatusOK {
			t.Errorf("%s answers %d: %s", path, got.code, got.body)
		}
	}
	if dump := decode[graph.Dump](t, g.get("/debug/gc/graph?format=json", reader.bearer()...)); len(dump.Nodes) != 0 {
		t.Errorf("it is shown %v", names(dump))
	}
	if records := g.records("", reader.bearer()...); len(records) != 0 {
		t.Errorf("it is shown %v", records)
	}
}

func TestGuard_ShowsInTheGraphWhatTheClientMayGet(t *testing.T) {
	mine, other := newWorld(t, sharedCluster(t)), newWorld(t, sharedCluster(t))
	g := running(t, sharedCluster(t), "--insecure-debug=false")
	client := mine.getter("getter", mine.ns, "configmaps")
	owner := mine.make("owner")
	mine.makeSecret("secret", owner)
	dependent := mine.make("dependent", owner)
	hidden := other.make("hidden", other.make("hidden-owner"))
	var dump graph.Dump
	devtest.Eventually(t, patience, func() error {
		dump = decode[graph.Dump](t, g.get("/debug/gc/graph?format=json", client.bearer()...))
		if len(dump.Nodes) < 2 {
			return errors.New("the graph does not have them yet")
		}
		return nil
	})
	sameNames(t, names(dump), "owner", "dependent")
	if diff := cmp.Diff([]graph.DumpEdge{{Dependent: dependent.UID, Owner: owner.UID}}, dump.Edges); diff != "" {
		t.Error(diff)
	}
	dot := g.get("/debug/gc/graph", client.bearer()...).body
	for _, name := range []string{"hidden", "secret"} {
		if strings.Contains(dot, name) {
			t.Errorf("the DOT shows %q", name)
		}
	}
	there, nowhere := g.get("/debug/gc/graph?uid="+string(hidden.UID), client.bearer()...), g.get("/debug/gc/graph?uid=nowhere", client.bearer()...)
	if there.code != nowhere.code {
		t.Errorf("an object that is hidden answers %d, and one that does not exist %d: so it shows that it exists", there.code, nowhere.code)
	}
}

func TestGuard_AnswersSoonWhateverThereIsToAskAbout(t *testing.T) {
	w := newWorld(t, sharedCluster(t))
	g := running(t, sharedCluster(t), "--insecure-debug=false")
	reader := w.reader("reader")
	w.makeMany("dependent-", 300, w.make("owner"))
	before := time.Now()
	if got := g.get("/debug/gc/graph", reader.bearer()...); got.code != http.StatusOK {
		t.Errorf("answers %d: %s", got.code, got.body)
	}
	if took := time.Since(before); took > 5*time.Second {
		t.Errorf("it took %s", took)
	}
}

func TestGuard_ShowsOfTheRecordsWhatTheClientMayGet(t *testing.T) {
	mine, other := newWorld(t, sharedCluster(t)), newWorld(t, sharedCluster(t))
	g := running(t, sharedCluster(t), "--insecure-debug=false")
	maps := mine.getter("maps", mine.ns, "configmaps")
	secrets := mine.getter("secrets", mine.ns, "secrets")
	owner := mine.make("owner")
	secret := mine.makeSecret("secret", owner)
	mine.delete(owner)
	dependent := mine.orphaned("dependent")
	hidden := other.orphaned("hidden")
	mine.goes(dependent)
	other.goes(hidden)
	devtest.Eventually(t, patience, func() error {
		if len(g.records("", maps.bearer()...)) == 0 || len(g.records("", secrets.bearer()...)) == 0 {
			return errors.New("no records yet")
		}
		return nil
	})
	done := func(shown []record.Entry) []record.Entry { // and not what was kept until the policies had been read
		return slices.DeleteFunc(shown, func(e record.Entry) bool { return e.Action == record.None })
	}
	shown := done(g.records("", maps.bearer()...))
	if len(shown) != 1 || shown[0].Object.UID != dependent.UID || len(shown[0].Chain) != 1 {
		t.Errorf("who may get ConfigMaps is shown %+v", shown)
	}
	shown = done(g.records("", secrets.bearer()...))
	if len(shown) != 1 || shown[0].Object.UID != secret.UID || len(shown[0].Owners) != 0 || len(shown[0].Chain) != 0 {
		t.Errorf("who may get Secrets is shown %+v", shown)
	}
	if shown := g.records(hidden.UID, maps.bearer()...); len(shown) != 0 {
		t.Errorf("who may not get it is shown %+v", shown)
	}
}
