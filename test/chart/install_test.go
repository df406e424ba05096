package chart

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gleaner-dev/gleaner/devcluster"
	"github.com/gleaner-dev/gleaner/devcluster/devtest"
)

const timeout = 2 * time.Minute

const policy = `
apiVersion: gleaner.dev/v1alpha1
kind: ClusterGCPolicy
metadata: {name: keep}
spec:
  resources: [{apiGroups: [""], resources: [configmaps]}]
  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: shop}}
  fixed: {propagate: {decision: Orphan}}
  mode: Enforce
`

const finalizer = `
apiVersion: gleaner.dev/v1alpha1
kind: PolicyModule
metadata: {name: m, namespace: shop}
spec:
  rego: {inline: "package gleaner\n\nfinalize := {\"decision\": \"Wait\", \"after\": \"1h\"}\n"}
---
apiVersion: gleaner.dev/v1alpha1
kind: Finalizer
metadata: {name: f, namespace: shop}
spec:
  resources: [{apiGroups: [""], resources: [secrets]}]
  module: {name: m}
  onRemoval: Release
`

// chartEnv is a cluster on which the chart is installed.
type chartEnv struct {
	*testing.T
	cluster *devcluster.Cluster
}

func TestChart_InstallUpgradeAndUninstall(t *testing.T) {
	cluster := devtest.Shared(t)
	e := &chartEnv{t, cluster}
	e.kubectl("create", "namespace", "shop")
	flags := []string{"-n", namespace, "--kubeconfig", cluster.Kubeconfig(), "--timeout", timeout.String()}
	install := append([]string{"install", name, chart, "--create-namespace", "--wait"}, append(flags, set("mode=primary", "replicas=1")...)...)
	startNode(t, cluster)

	out := mustHelm(t, install...)
	if !strings.Contains(out, "as the cluster's only garbage collector") || !strings.Contains(out, "STATUS: deployed") {
		t.Errorf("helm install printed:\n%s", out)
	}
	e.apply(policy)
	e.kubectl("wait", "clustergcpolicies/keep", "--for=condition=Enforcing", "--timeout", timeout.String())
	e.kubectl("create", "configmap", "held", "-n", "shop")
	e.waitForHold(true)
	before := e.unchanging()

	e.step("an upgrade keeps holds, policies and definitions", func(e *chartEnv) {
		mustHelm(e.T, append([]string{"upgrade", name, chart, "--wait", "--reuse-values"}, append(flags, set("log.verbosity=1", "retention=true")...)...)...)
		if args := e.kubectl("get", "deployment/gleaner", "-n", namespace, "-o", "jsonpath={.spec.template.spec.containers[0].args}"); !strings.Contains(args, "--verbosity=1") {
			e.Errorf("arguments are %s", args)
		}
		if after := e.unchanging(); after != before {
			e.Errorf("before and after the upgrade:\n%s\n%s", before, after)
		}
		if err := installed(e.T, cluster, "customresourcedefinitions/retentionpolicies.gleaner.dev"); err != nil {
			e.Error(err)
		}
	})
	// Their pods are not waited for: there is no kubelet.
	e.step("an upgrade adds the agent on each node and the web UI", func(e *chartEnv) {
		mustHelm(e.T, append([]string{"upgrade", name, chart, "--reuse-values"}, append(flags, set("nodeRetention=true", "ui=true")...)...)...)
		for _, object := range []string{"customresourcedefinitions/noderetentionpolicies.gleaner.dev", "validatingadmissionpolicies/gleaner-node-own-node", "namespaces/gleaner-ui"} {
			if err := installed(e.T, cluster, object); err != nil {
				e.Error(err)
			}
		}
		e.kubectl("get", "daemonset/gleaner-node", "-n", "gleaner-node")
		e.kubectl("get", "deployment/gleaner-ui", "-n", "gleaner-ui")
	})
	e.step("to uninstall is refused while there is a finalizer, and the operator goes on", func(e *chartEnv) {
		e.apply(finalizer)
		out, err := helm(e.T, append([]string{"uninstall", name}, flags...)...)
		if err == nil || !strings.Contains(err.Error(), "Job/gleaner-system/gleaner-release not ready. status: Failed") {
			e.Errorf("got error %v, want one of the Job\n%s", err, out)
		}
		if replicas := e.kubectl("get", "deployment/gleaner", "-n", namespace, "-o", "jsonpath={.spec.replicas} {.status.readyReplicas}"); replicas != "1 1" {
			e.Errorf("replicas are %q", replicas)
		}
		e.waitForHold(true)
		e.kubectl("delete", "finalizers/f", "-n", "shop", "--timeout", timeout.String())
	})
	e.step("to uninstall removes holds and admission objects, and keeps definitions and policies", func(e *chartEnv) {
		mustHelm(e.T, append([]string{"uninstall", name, "--wait"}, flags...)...)
		e.waitForHold(false)
		left := e.kubectl("get", "mutatingadmissionpolicies,mutatingadmissionpolicybindings,validatingadmissionpolicies,validatingadmissionpolicybindings,validatingwebhookconfigurations,mutatingwebhookconfigurations,flowschemas,clusterroles,clusterrolebindings,namespaces", "-o", "name")
		left = strings.ReplaceAll(left, "namespace/"+namespace+"\n", "") // helm --create-namespace made it
		left += e.kubectl("get", "deployments,jobs,serviceaccounts,roles,rolebindings,services,networkpolicies,resourcequotas", "-n", namespace, "-o", "name")
		if strings.Contains(left, "gleaner") {
			e.Errorf("still there:\n%s", left)
		}
		if err := installed(e.T, cluster, "clustergcpolicies/keep"); err != nil {
			e.Error(err)
		}
		e.kubectl("create", "configmap", "free", "-n", "shop")
		if finalizers := e.kubectl("get", "configmap/free", "-n", "shop", "-o", "jsonpath={.metadata.finalizers}"); finalizers != "" {
			e.Errorf("a new object has the finalizers %s", finalizers)
		}
	})
	e.step("to install it again puts the policies in force", func(e *chartEnv) {
		mustHelm(e.T, install...)
		e.waitForHold(true)
		e.kubectl("delete", "clustergcpolicies/keep", "--timeout", timeout.String())
		e.kubectl("delete", "policymodules/m", "-n", "shop", "--timeout", timeout.String())
		mustHelm(e.T, append([]string{"uninstall", name, "--wait"}, flags...)...)
	})
}

// step is a part of a test that continues the previous one.
func (e *chartEnv) step(claim string, do func(*chartEnv)) {
	if !e.Run(claim, func(t *testing.T) { do(&chartEnv{t, e.cluster}) }) {
		e.FailNow()
	}
}

func (e *chartEnv) kubectl(args ...string) string {
	e.Helper()
	out, err := e.cluster.Kubectl(e.Context(), args...)
	if err != nil {
		e.Fatal(err)
	}
	return string(out)
}

func (e *chartEnv) apply(manifest string) {
	e.Helper()
	path := filepath.Join(e.TempDir(), "manifest.yaml")
	if err := os.WriteFile(path, []byte(manifest), 0o600); err != nil {
		e.Fatal(err)
	}
	e.kubectl("apply", "-f", path)
}

// waitForHold waits until an object has a hold, or has none.
func (e *chartEnv) waitForHold(want bool) {
	e.Helper()
	devtest.Eventually(e, timeout, func() error {
		finalizers, err := e.cluster.Kubectl(e.Context(), "get", "configmap/held", "-n", "shop", "-o", "jsonpath={.metadata.finalizers}")
		if err == nil && strings.Contains(string(finalizers), "gleaner.dev/hold") != want {
			err = fmt.Errorf("finalizers are %s", finalizers)
		}
		return err
	})
}

// unchanging is what an upgrade must keep.
func (e *chartEnv) unchanging() string {
	e.Helper()
	definitions := e.kubectl("get", "customresourcedefinitions", "-o", `jsonpath={range .items[?(@.metadata.name!="")]}{.metadata.name} {.metadata.uid}{"\n"}{end}`)
	var kept []string
	for line := range strings.Lines(definitions) {
		if !strings.Contains(line, "retention") { // the upgrade adds these
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, "") +
		e.kubectl("get", "clustergcpolicies/keep", "-o", "jsonpath={.metadata.uid} {.metadata.generation} {.spec}") +
		e.kubectl("get", "configmap/held", "-n", "shop", "-o", "jsonpath={.metadata.uid} {.metadata.finalizers} {.metadata.resourceVersion}")
}
