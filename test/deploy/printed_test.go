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
	"github.com/gleaner-dev/gleaner/test/pins"
)

// What gleaner rbac prints is enough, and nothing in it is more than that.
func TestG71_TheOperatorWorksWithTheRightsThatArePrintedAndUsesEachOfThem(t *testing.T) {
	for mode, overlay := range map[string]string{"primary": primary, "companion": companion} {
		t.Run(mode, func(t *testing.T) {
			p := startPrinted(t, mode, overlay)
			rights := p.grant(mode)
			o := p.operate()
			p.govern()
			p.unprivileged(o)
			p.finish()
			o.stop()
			p.compare(rights)
		})
	}
}

// printed is a control plane with an operator that has the printed rights alone.
type printed struct {
	*world
	cluster *devcluster.Cluster
	audit   string // the file
	admin   string // kubeconfig
}

func startPrinted(t *testing.T, mode, overlay string) *printed {
	t.Helper()
	for _, folder := range []string{"../../config", "../../crds/manifests"} {
		if err := readSources(folder, ".yaml"); err != nil {
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
		options.Controllers = noCollector
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
	return &printed{world: newWorld(t, cluster.RESTConfig()), cluster: cluster, audit: audit, admin: cluster.Kubeconfig()}
}

// gleaner runs the command as the administrator.
func (p *printed) gleaner(args ...string) (out string, code int) {
	p.Helper()
	cmd := exec.Command(binary(p.T), append(args, "--kubeconfig="+p.admin)...)
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

// text has a test's names in a manifest.
func (p *printed) text(manifest string, names ...string) string {
	return strings.NewReplacer(append([]string{"NAMESPACE", p.ns}, names...)...).Replace(manifest)
}

func (p *printed) applies(manifest string) {
	p.Helper()
	path := filepath.Join(p.TempDir(), "manifest.yaml")
	if err := os.WriteFile(path, []byte(pins.Manifest(manifest)), 0o600); err != nil {
		p.Fatal(err)
	}
	kubectl(p.T, p.cluster, "apply", "-f", path)
}

// grant gives the operator what is printed for it, and nothing else.
func (p *printed) grant(mode string) []rbacv1.Role {
	p.Helper()
	p.applies(p.text(governed))
	args := []string{"rbac", "--collector", mode, "--service-account", namespace + "/gleaner"}
	if out, code := p.gleaner(append(args, "--check")...); code != 3 || !strings.Contains(out, "is missing") {
		p.Errorf("without any rights the check ends with %d:\n%s", code, out)
	}
	out, code := p.gleaner(args...)
	if code != 0 {
		p.Fatalf("it ends with %d", code)
	}
	p.applies(out)
	devtest.Eventually(p, patience, func() error { // authorizers learn of roles by a watch
		if out, code := p.gleaner(append(args, "--check")...); code != 0 {
			return fmt.Errorf("with the printed rights the check ends with %d:\n%s", code, out)
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

func (p *printed) operate() *operator {
	p.Helper()
	o := startOperator(p.T, p.cluster)
	o.ready("/healthz", "/readyz")
	for _, resource := range []string{"clustergcpolicy/frees", "gcpolicy/keeping", "finalizers.gleaner.dev/done", "clusterfinalizer/done"} {
		kubectl(p.T, p.cluster, "wait", "-n", p.ns, resource, "--for=condition=Enforcing", "--timeout="+patience.String())
	}
	return o
}

// govern has things deleted that policies and finalizers have a say in.
func (p *printed) govern() {
	p.Helper()
	p.applies(p.text(objects))
	for _, of := range []string{"secret/owner gleaner.dev/hold", "podtemplate/done " + p.ns + ".gleaner.dev/done", "resourcequota/done example.com/done"} {
		object, finalizer, _ := strings.Cut(of, " ")
		p.has(object, "{.metadata.finalizers}", finalizer)
	}
	uid := func(object string) string { return p.field(object, "{.metadata.uid}") }
	p.applies(p.text(dependents, "SECRET", uid("secret/owner"), "CONFIGMAP", uid("configmap/owner"), "READER", uid("serviceaccount/reader")))
	kubectl(p.T, p.cluster, "delete", "-n", p.ns, "secret/owner", "configmap/owner", "podtemplate/done", "resourcequota/done",
		"--wait=true", "--timeout="+patience.String())
	p.gone("limitrange/excepted", "configmap/goes")
	p.has("limitrange/shared", "{.metadata.ownerReferences[*].kind}", "ServiceAccount")
	p.has("configmap/kept", "{.metadata.name}/{.metadata.ownerReferences}", "kept/")
	p.has("serviceaccount/freed", "{.metadata.name}/{.metadata.ownerReferences}", "freed/")
}

func (p *printed) field(object, path string) string {
	p.Helper()
	return kubectl(p.T, p.cluster, "get", "-n", p.ns, object, "-o", "jsonpath="+path)
}

// has waits until a field of an object holds a text, or is one that ends in a slash.
func (p *printed) has(object, path, want string) {
	p.Helper()
	devtest.Eventually(p, patience, func() error {
		out, err := p.cluster.Kubectl(p.Context(), "get", "-n", p.ns, object, "-o", "jsonpath="+path)
		if err == nil && (!strings.Contains(out, want) || strings.HasSuffix(want, "/") && out != want) {
			err = fmt.Errorf("%s of %s is %q, not %q", path, object, out, want)
		}
		return err
	})
}

func (p *printed) gone(names ...string) {
	p.Helper()
	for _, object := range names {
		kubectl(p.T, p.cluster, "wait", "-n", p.ns, "--for=delete", object, "--timeout="+patience.String())
	}
}

// unprivileged asks the operator for what it has to ask the API server about.
func (p *printed) unprivileged(o *operator) {
	p.Helper()
	o.says("/metrics", token(p.T, p.cluster, p.ns, p.bound("asker", "gleaner-debug-reader")), "gleaner_writes_enabled 1")
}

// finish changes the policies, mends what somebody broke, and removes everything.
func (p *printed) finish() {
	p.Helper()
	kubectl(p.T, p.cluster, "label", "configmap", "gleaner-holds", "-n", namespace, "app.kubernetes.io/managed-by-")
	kubectl(p.T, p.cluster, "label", "mutatingadmissionpolicybinding", "gleaner-hold-frees", "app.kubernetes.io/managed-by-")
	kubectl(p.T, p.cluster, "patch", "clustergcpolicy", "frees", "--type=merge", "-p", `{"spec":{"objectSelector":{"matchLabels":{"a":"b"}}}}`)
	devtest.Eventually(p, patience, func() error {
		out, err := p.cluster.Kubectl(p.Context(), "get", "mutatingadmissionpolicybinding,mutatingadmissionpolicy", "-o", "yaml")
		if err == nil && !strings.Contains(out, "a: b") {
			err = errors.New("the admission policy does not follow the policy")
		}
		return err
	})
	p.has("mutatingadmissionpolicybinding/gleaner-hold-frees", "{.metadata.labels}", "gleaner")
	kubectl(p.T, p.cluster, "delete", "clustergcpolicy/frees", "clusterfinalizer/done", "--timeout="+patience.String())
	kubectl(p.T, p.cluster, "delete", "-n", p.ns, "gcpolicy/keeping", "finalizers.gleaner.dev/done", "--timeout="+patience.String())
	devtest.Eventually(p, patience, func() error {
		out, err := p.cluster.Kubectl(p.Context(), "get", "mutatingadmissionpolicy,mutatingadmissionpolicybinding,validatingwebhookconfiguration", "-o", "name")
		if err == nil && strings.TrimSpace(out) != "" {
			err = fmt.Errorf("there is still %s", out)
		}
		return err
	})
}

// call is what the operator asked of the API server.
type call struct {
	Verb      string
	ObjectRef struct{ Namespace, APIGroup, Resource, Subresource, Name string }
	Status    struct {
		Code   int
		Reason string
	} `json:"responseStatus"`
	ImpersonatedUser *struct{ Username string }
}

func (p *printed) calls() []call {
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

// rare are rights that it takes other events to need than happen here.
var rare = []string{
	"patch /events",     // an event that is told again
	"patch /configmaps", // the canary, where nobody comes for it

	// Asked by an admission plugin that is not enabled here: test/integration/policies has it.
	"update */*/finalizers",

	// An API server without MutatingAdmissionPolicies.
	"create admissionregistration.k8s.io/mutatingwebhookconfigurations",
	"update admissionregistration.k8s.io/mutatingwebhookconfigurations",
	"delete admissionregistration.k8s.io/mutatingwebhookconfigurations",
}

// compare holds the rights against what was asked for.
func (p *printed) compare(roles []rbacv1.Role) {
	p.Helper()
	calls := p.calls()
	for _, c := range calls {
		if c.Status.Code == 403 {
			p.Errorf("it was forbidden to %s %s", c.Verb, c.ObjectRef)
		}
	}
	for _, role := range roles {
		for _, rule := range role.Rules {
			for _, group := range rule.APIGroups {
				for _, resource := range rule.Resources {
					for _, verb := range rule.Verbs {
						right := verb + " " + group + "/" + resource
						if !slices.Contains(rare, right) && !slices.ContainsFunc(calls, func(c call) bool { return c.uses(role.Namespace, group, resource, verb) }) {
							p.Errorf("it has the right to %s in %q, and does not use it", right, role.Namespace)
						}
					}
				}
			}
		}
	}
}

// uses reports whether a call needed a right.
func (c call) uses(namespace, group, resource, verb string) bool {
	if verb == "impersonate" {
		return c.ImpersonatedUser != nil && strings.HasPrefix(c.ImpersonatedUser.Username, "system:serviceaccount:"+cmp.Or(namespace, "?")+":")
	}
	full := strings.TrimSuffix(c.ObjectRef.Resource+"/"+c.ObjectRef.Subresource, "/")
	return c.ImpersonatedUser == nil && c.Verb == verb && (group == "*" || group == c.ObjectRef.APIGroup) &&
		(resource == "*" || resource == full) && (namespace == "" || namespace == c.ObjectRef.Namespace)
}
