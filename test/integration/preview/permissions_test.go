package preview

import (
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/gleaner-dev/gleaner/devcluster/devtest"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/preview"
	"github.com/gleaner-dev/gleaner/operator/survey"
)

// A user who may only read the ConfigMaps of one namespace is informed of that, and of
// the outcomes that depend on unread policies.
func TestPreview_UnreadableTypes_AreUnknown(t *testing.T) {
	w := newEnv(t)
	w.create(`
		ConfigMap top
		ConfigMap a owners=top
		Secret hidden owners=top`)
	kube := kubernetes.NewForConfigOrDie(w.config)
	if _, err := kube.RbacV1().Roles(w.ns).Create(t.Context(), &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: "limited"},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get", "list"}}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := kube.RbacV1().RoleBindings(w.ns).Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "limited"},
		RoleRef:    rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "Role", Name: "limited"},
		Subjects:   []rbacv1.Subject{{APIGroup: "rbac.authorization.k8s.io", Kind: "User", Name: "limited-" + w.ns}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	config, err := devtest.Shared(t).ConfigFor("limited-" + w.ns)
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	for _, namespace := range []string{"", w.ns} {
		s, err := survey.Live(t.Context(), survey.Options{Config: config, Namespace: namespace, Fallback: w.ns, Now: time.Now})
		if err != nil {
			t.Fatal(err)
		}
		reported := map[string]survey.Unread{}
		for _, u := range s.Unread {
			reported[u.Resource.String()] = u
		}
		if u, is := reported["secrets"]; !is || u.OnlyNamespace != "" {
			t.Errorf("unread Secrets: %v, %t", u, is)
		}
		if u, is := reported["configmaps"]; is != (namespace == "") || u.OnlyNamespace != namespaceIf(is, w.ns) {
			t.Errorf("unread ConfigMaps: %v, %t", u, is)
		}
		_, unread := preview.ReadPolicies(t.Context(), s, config, nil, nil, time.Now())
		if unread == nil || !strings.Contains(unread.Error(), "forbidden") {
			t.Fatalf("the policies were read: %v", unread)
		}
		p, err := preview.Delete(t.Context(), preview.Options{
			Survey: s, Config: config, Targets: []graph.ID{graph.IDOf(w.created["top"].GetUID())}, Cascade: background, PoliciesErr: unread, Now: time.Now(),
		})
		if err != nil {
			t.Fatal(err)
		}
		predicted := w.outcomes(p)
		if len(predicted) != 2 || predicted["top"] != "Goes" || predicted["a"] != "Unknown" {
			t.Errorf("preview is %v", predicted)
		}
	}
}

func namespaceIf(is bool, namespace string) string {
	if is {
		return namespace
	}
	return ""
}
