package deploy

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"github.com/gleaner-dev/gleaner/devcluster"
	"github.com/gleaner-dev/gleaner/devcluster/devtest"
	"github.com/gleaner-dev/gleaner/operator/admission"
	"github.com/gleaner-dev/gleaner/test/pins"
	"github.com/gleaner-dev/gleaner/test/program"
)

// The permissions that gleaner rbac prints are sufficient, and all of them are used.
func TestG71_PrintedPermissions_AreSufficientAndUsed(t *testing.T) {
	for mode, overlay := range map[string]string{"primary": primary, "companion": companion} {
		t.Run(mode, func(t *testing.T) {
			p := newPermissionsEnv(t, mode, overlay)
			rights := p.grant(mode)
			o := p.startOperator()
			p.exercisePolicies()
			p.exerciseAuthorization(o)
			p.finish(mode)
			o.stop()
			p.compareCalls(rights, p.unusedPermissions())
		})
	}
}

// permissionsEnv is a control plane with an operator that has only the printed permissions.
type permissionsEnv struct {
	*env
	cluster *devcluster.Cluster
	audit   string // the file
	admin   string // kubeconfig
}

func newPermissionsEnv(t *testing.T, mode, overlay string) *permissionsEnv {
	t.Helper()
	for _, folder := range []string{"../../config", "../../crds/manifests"} {
		if err := program.ReadFiles(folder); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := devcluster.Build(t.Context(), os.Stderr); err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	policy, audit := filepath.Join(folder, "policy.yaml"), filepath.Join(folder, "audit.log")
	if err := os.WriteFile(policy, []byte(auditing), 0o600); err != nil {
		t.Fatal(err)
	}
	options := devcluster.Options{APIServerFlags: []string{"--audit-policy-file=" + policy, "--audit-log-path=" + audit}}
	if mode == "primary" {
		options.Controllers = devcluster.WithoutCollector()
	}
	cluster, err := devcluster.Start(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cluster.Stop(); err != nil {
			t.Error(err)
		}
	})
	kubectl(t, cluster, "apply", "-k", overlay)
	for _, role := range []string{"clusterrole", "clusterrolebinding"} {
		kubectl(t, cluster, "delete", role, "gleaner", "gleaner-companion", "--ignore-not-found")
	}
	for _, role := range []string{"role", "rolebinding"} {
		kubectl(t, cluster, "delete", role, "gleaner", "gleaner-companion", "-n", namespace, "--ignore-not-found")
	}
	return &permissionsEnv{env: newEnv(t, cluster.RESTConfig()), cluster: cluster, audit: audit, admin: cluster.Kubeconfig()}
}

// gleaner runs the gleaner command as the administrator.
func (p *permissionsEnv) gleaner(args ...string) (out string, code int) {
	p.Helper()
	cmd := exec.Command(gleaner.Path(p.T), append(args, "--kubeconfig="+p.admin)...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		p.Fatal(err)
	}
	if stderr.Len() != 0 {
		p.Logf("%v: %s", args, stderr.String())
	}
	return stdout.String(), cmd.ProcessState.ExitCode()
}

// render inserts a test's names into a manifest.
func (p *permissionsEnv) render(manifest string, names ...string) string {
	return strings.NewReplacer(append([]string{"NAMESPACE", p.ns}, names...)...).Replace(manifest)
}

func (p *permissionsEnv) apply(manifest string) {
	p.Helper()
	path := filepath.Join(p.TempDir(), "manifest.yaml")
	if err := os.WriteFile(path, []byte(pins.Manifest(manifest)), 0o600); err != nil {
		p.Fatal(err)
	}
	kubectl(p.T, p.cluster, "apply", "-f", path)
}

// grant grants the operator the printed permissions.
func (p *permissionsEnv) grant(mode string) []rbacv1.Role {
	p.Helper()
	p.apply(p.render(governed))
	args := []string{"rbac", "--collector", mode, "--service-account", namespace + "/gleaner"}
	if out, code := p.gleaner(append(args, "--check")...); code != 3 || !strings.Contains(out, "is missing") {
		p.Errorf("check without permissions ended with %d:\n%s", code, out)
	}
	out, code := p.gleaner(args...)
	if code != 0 {
		p.Fatalf("exit code %d", code)
	}
	p.apply(out)
	devtest.Eventually(p, timeout, func() error { // authorizers watch roles
		if out, code := p.gleaner(append(args, "--check")...); code != 0 {
			return fmt.Errorf("check with the printed permissions ended with %d:\n%s", code, out)
		}
		return nil
	})
	var roles []rbacv1.Role
	for document := range strings.SplitSeq(out, "---\n") {
		var r rbacv1.Role // or a ClusterRole, which has rules as well
		if err := yaml.Unmarshal([]byte(document), &r); err != nil {
			p.Fatal(err)
		}
		if len(r.Rules) != 0 {
			roles = append(roles, r)
		}
	}
	return roles
}

func (p *permissionsEnv) startOperator() *operator {
	p.Helper()
	o := startOperator(p.T, p.cluster)
	o.waitUntilReady("/healthz", "/readyz")
	for _, resource := range []string{"clusterpause/elsewhere", "pause/elsewhere"} {
		kubectl(p.T, p.cluster, "wait", "-n", p.ns, resource, "--for=condition=InForce", "--timeout="+timeout.String())
	}
	for _, resource := range []string{"clustergcpolicy/frees", "gcpolicy/keeping", "finalizers.gleaner.dev/done", "clusterfinalizer/done"} {
		kubectl(p.T, p.cluster, "wait", "-n", p.ns, resource, "--for=condition=Enforcing", "--timeout="+timeout.String())
	}
	return o
}

// exercisePolicies deletes objects that policies and finalizers decide about.
func (p *permissionsEnv) exercisePolicies() {
	p.Helper()
	p.apply(p.render(objects))
	for _, of := range []string{"secret/owner gleaner.dev/hold", "podtemplate/done " + p.ns + ".gleaner.dev/done", "resourcequota/done example.com/done"} {
		object, finalizer, _ := strings.Cut(of, " ")
		p.waitForField(object, "{.metadata.finalizers}", finalizer)
	}
	uid := func(object string) string { return p.getField(object, "{.metadata.uid}") }
	p.apply(p.render(dependents, "SECRET", uid("secret/owner"), "CONFIGMAP", uid("configmap/owner"), "READER", uid("serviceaccount/reader")))
	kubectl(p.T, p.cluster, "delete", "-n", p.ns, "secret/owner", "configmap/owner", "podtemplate/done", "resourcequota/done",
		"--wait=true", "--timeout="+timeout.String())
	p.waitForDeletion("limitrange/excepted", "configmap/goes")
	p.waitForField("limitrange/shared", "{.metadata.ownerReferences[*].kind}", "ServiceAccount")
	p.waitForField("configmap/kept", "{.metadata.name}/{.metadata.ownerReferences}", "kept/")
	p.waitForField("serviceaccount/freed", "{.metadata.name}/{.metadata.ownerReferences}", "freed/")
}

func (p *permissionsEnv) getField(object, path string) string {
	p.Helper()
	return kubectl(p.T, p.cluster, "get", "-n", p.ns, object, "-o", "jsonpath="+path)
}

// waitForField waits until a field of an object contains a text, or ends in a slash.
func (p *permissionsEnv) waitForField(object, path, want string) {
	p.Helper()
	devtest.Eventually(p, timeout, func() error {
		out, err := p.cluster.Kubectl(p.Context(), "get", "-n", p.ns, object, "-o", "jsonpath="+path)
		if err == nil && (!strings.Contains(out, want) || strings.HasSuffix(want, "/") && out != want) {
			err = fmt.Errorf("%s of %s is %q, not %q", path, object, out, want)
		}
		return err
	})
}

func (p *permissionsEnv) waitForDeletion(names ...string) {
	p.Helper()
	for _, object := range names {
		kubectl(p.T, p.cluster, "wait", "-n", p.ns, "--for=delete", object, "--timeout="+timeout.String())
	}
}

// exerciseAuthorization sends the operator requests that it has to authorize at the API server.
func (p *permissionsEnv) exerciseAuthorization(o *operator) {
	p.Helper()
	o.waitForText("/metrics", token(p.T, p.cluster, p.ns, p.createBoundAccount("asker", "gleaner-debug-reader")), "gleaner_writes_enabled 1")
}

// finish changes the policies, repairs what was broken, and removes everything.
func (p *permissionsEnv) finish(mode string) {
	p.Helper()
	var adding string // what adds holds when objects are created
	switch {
	case hasMutatingPolicies(p.env):
		adding = "mutatingadmissionpolicybinding/gleaner-hold-frees"
		kubectl(p.T, p.cluster, "label", "configmap", "gleaner-holds", "-n", namespace, "app.kubernetes.io/managed-by-")
	case mode == "companion":
		adding = "mutatingwebhookconfiguration/" + admission.ConfigurationName
	}
	if adding != "" {
		kubectl(p.T, p.cluster, "label", adding, "app.kubernetes.io/managed-by-")
	}
	kubectl(p.T, p.cluster, "patch", "clustergcpolicy", "frees", "--type=merge", "-p", `{"spec":{"objectSelector":{"matchLabels":{"a":"b"}}}}`)
	devtest.Eventually(p, timeout, func() error {
		out, err := p.cluster.Kubectl(p.Context(), "get", p.mutating(), "-o", "yaml")
		if err == nil && adding != "" && !strings.Contains(out, "a: b") {
			err = errors.New("what adds holds is not updated")
		}
		return err
	})
	if adding != "" {
		p.waitForField(adding, "{.metadata.labels}", "gleaner")
	}
	kubectl(p.T, p.cluster, "delete", "clustergcpolicy/frees", "clusterfinalizer/done", "--timeout="+timeout.String())
	kubectl(p.T, p.cluster, "delete", "-n", p.ns, "gcpolicy/keeping", "finalizers.gleaner.dev/done", "--timeout="+timeout.String())
	devtest.Eventually(p, timeout, func() error {
		out, err := p.cluster.Kubectl(p.Context(), "get", p.mutating()+",validatingwebhookconfiguration", "-o", "name")
		const ofManifests = "validatingwebhookconfiguration.admissionregistration.k8s.io/gleaner-validation"
		if left := strings.TrimSpace(out); err == nil && left != "" && left != ofManifests {
			err = fmt.Errorf("%s still exists", left)
		}
		return err
	})
}

// mutating returns the types that add something to objects when they are created, for kubectl.
func (p *permissionsEnv) mutating() string {
	if hasMutatingPolicies(p.env) {
		return "mutatingadmissionpolicy,mutatingadmissionpolicybinding,mutatingwebhookconfiguration"
	}
	return "mutatingwebhookconfiguration"
}

// call is a request of the operator from the audit log.
type call struct {
	Verb      string
	ObjectRef struct{ Namespace, APIGroup, Resource, Subresource, Name string }
	Status    struct {
		Code   int
		Reason string
	} `json:"responseStatus"`
	ImpersonatedUser *struct{ Username string }
}

func (p *permissionsEnv) auditedCalls() []call {
	p.Helper()
	file, err := os.Open(p.audit)
	if err != nil {
		p.Fatal(err)
	}
	defer file.Close()
	var all []call
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var c call
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			p.Fatal(err)
		}
		all = append(all, c)
	}
	return all
}

// unusedPermissions returns the permissions that are needed only in situations other than these.
func (p *permissionsEnv) unusedPermissions() []string {
	unused := []string{
		"patch /events",     // a repeated event
		"patch /configmaps", // the canary, if no collector deletes it

		// Required by an admission plugin that is not enabled here: tested in test/integration/policies.
		"update */*/finalizers",
	}
	other := []string{"mutatingwebhookconfigurations"} // an API server without MutatingAdmissionPolicies
	if !hasMutatingPolicies(p.env) {
		other = append(other, "mutatingadmissionpolicies", "mutatingadmissionpolicybindings")
	}
	for _, resource := range other {
		for _, verb := range []string{"create", "update", "delete"} {
			unused = append(unused, verb+" admissionregistration.k8s.io/"+resource)
		}
	}
	return unused
}

// compareCalls compares the permissions with the requests.
func (p *permissionsEnv) compareCalls(roles []rbacv1.Role, unused []string) {
	p.Helper()
	calls := p.auditedCalls()
	for _, c := range calls {
		if c.Status.Code == 403 {
			p.Errorf("operator may not %s %s", c.Verb, c.ObjectRef)
		}
	}
	for _, role := range roles {
		for _, rule := range role.Rules {
			for _, group := range rule.APIGroups {
				for _, resource := range rule.Resources {
					for _, verb := range rule.Verbs {
						right := verb + " " + group + "/" + resource
						if !slices.Contains(unused, right) && !slices.ContainsFunc(calls, func(c call) bool { return c.uses(role.Namespace, group, resource, verb) }) {
							p.Errorf("operator has unused permission to %s in %q", right, role.Namespace)
						}
					}
				}
			}
		}
	}
}

// uses reports whether a request needed a permission.
func (c call) uses(namespace, group, resource, verb string) bool {
	if verb == "impersonate" {
		return c.ImpersonatedUser != nil && strings.HasPrefix(c.ImpersonatedUser.Username, "system:serviceaccount:"+cmp.Or(namespace, "?")+":")
	}
	full := strings.TrimSuffix(c.ObjectRef.Resource+"/"+c.ObjectRef.Subresource, "/")
	return c.ImpersonatedUser == nil && c.Verb == verb && (group == "*" || group == c.ObjectRef.APIGroup) &&
		(resource == "*" || resource == full) && (namespace == "" || namespace == c.ObjectRef.Namespace)
}
