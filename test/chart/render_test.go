package chart

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

// version is what helm template would otherwise ask an API server for.
const version = "--kube-version=1.37.0"

func TestChart_InstallsTheObjectsOfTheOverlay(t *testing.T) {
	for claim, c := range map[string]struct {
		values     []string
		overlay    string
		components string
	}{
		"companion":                       {nil, "default", ""},
		"primary":                         {[]string{"mode=primary"}, "primary", ""},
		"primary with webhooks":           {[]string{"mode=primary", "webhooks=true"}, "primary", "webhooks"},
		"cert-manager":                    {[]string{"certManager=true"}, "cert-manager", ""},
		"for development":                 {[]string{"leaderElection=false", "log.format=text", "log.verbosity=2", "image.pullPolicy=IfNotPresent"}, "dev", ""},
		"an archive in a folder":          {[]string{"archive.storage=folder"}, "default", "archive-folder"},
		"primary, archive in a bucket":    {[]string{"mode=primary", "archive.storage=s3"}, "primary", "archive-s3"},
		"retention":                       {[]string{"retention=true"}, "default", "retention"},
		"monitoring":                      {[]string{"monitoring=true"}, "default", "../monitoring"},
		"retention and archive, together": {[]string{"retention=true", "archive.storage=folder"}, "default", "retention archive-folder"},
		"tenants":                         {[]string{"tenants=true"}, "default tenants", ""},
		"retention on nodes":              {[]string{"nodeRetention=true"}, "default node", ""},
		"the web UI":                      {[]string{"ui=true"}, "default ui", ""},
	} {
		t.Run(claim, func(t *testing.T) {
			out := mustHelm(t, append([]string{"template", name, chart, "-n", namespace, "--no-hooks", version}, set(c.values...)...)...)
			want := kustomize(t, strings.Fields(c.overlay), strings.Fields(c.components))
			delete(want, "Namespace/"+namespace) // helm install --create-namespace makes it
			if diff := cmp.Diff(want, parse(t, []byte(out))); diff != "" {
				t.Errorf("objects of the overlay and of the chart:\n%s", diff)
			}
		})
	}
}

func TestChart_KeepsCustomResourceDefinitionsAndTheArchive(t *testing.T) {
	out := mustHelm(t, append([]string{"template", name, chart, "-n", namespace, version}, set("archive.storage=folder", "retention=true", "nodeRetention=true")...)...)
	kept := 0
	for part := range strings.SplitSeq(out, "\n---\n") {
		var o unstructured.Unstructured
		if err := yaml.Unmarshal([]byte(part), &o.Object); err != nil {
			t.Fatal(err)
		}
		keep := o.GetAnnotations()["helm.sh/resource-policy"] == "keep"
		if must := o.GetKind() == "CustomResourceDefinition" || o.GetKind() == "PersistentVolumeClaim"; must != keep {
			t.Errorf("%s %s: kept by helm uninstall: %t", o.GetKind(), o.GetName(), keep)
		} else if keep {
			kept++
		}
	}
	if want := 6 + 4 + 2 + 2 + 3 + 1; kept != want {
		t.Errorf("%d objects are kept, want %d", kept, want)
	}
}

func TestChart_OtherNamespace_ReplacesTheUsualOneEverywhere(t *testing.T) {
	out := mustHelm(t, append([]string{"template", name, chart, "-n", "collector", version}, set("certManager=true", "monitoring=true", "archive.storage=folder", "nodeRetention=true", "ui=true")...)...)
	if strings.Contains(out, namespace) {
		t.Errorf("it still names %s", namespace)
	}
	for _, want := range []string{"gleaner-webhook.collector.svc", "--stop-operator=collector/gleaner"} {
		if !strings.Contains(out, want) {
			t.Errorf("%s is missing", want)
		}
	}
}

func TestChart_Values_ReachTheDeployment(t *testing.T) {
	digest := "sha256:" + strings.Repeat("0123456789abcdef", 4)
	for value, want := range map[string]string{
		"image.tag=v1.2.3":                        "image: \"ghcr.io/gleaner-dev/gleaner:v1.2.3\"",
		"image.digest=" + digest:                  "image: \"ghcr.io/gleaner-dev/gleaner@" + digest,
		"imagePullSecrets[0].name=registry":       "- name: registry",
		"replicas=3":                              "replicas: 3",
		"archive.maxSize=5Gi":                     "- --archive-max-size=5Gi",
		"archive.recordTTL=24h":                   "- --record-ttl=24h",
		"finalizerNetworks={10.0.0.0/8,fd00::/8}": "- --finalizer-networks=10.0.0.0/8,fd00::/8",
		"extraArgs[0]=--dry-run":                  "- \"--dry-run\"",
		"nodeSelector.disk=ssd":                   "disk: ssd",
		"podLabels.team=storage":                  "team: storage",
		"podAnnotations.note=x":                   "note: x",
		"priorityClassName=high":                  "priorityClassName: high",
		"env[0].name=HTTPS_PROXY":                 "- name: HTTPS_PROXY",
		"resources.limits.memory=4Gi":             "memory: 4Gi",
		"signatures.required=true":                "- --require-signatures",
		"signatures.trustedRoot=x":                "- --trusted-root=/etc/gleaner/trust/trusted_root.json",
	} {
		out := mustHelm(t, append([]string{"template", name, chart, "-n", namespace, version, "--show-only", "templates/deployment.yaml"}, set(value)...)...)
		if !strings.Contains(out, want) {
			t.Errorf("with %s, %q is missing:\n%s", value, want, out)
		}
	}
	out := mustHelm(t, append([]string{"template", name, chart, version, "--show-only", "templates/network_policy.yaml"}, set("networkPolicy.egressPorts={9000}")...)...)
	if !strings.Contains(out, "port: 9000") {
		t.Errorf("the network policy has no port 9000:\n%s", out)
	}
}

// The DaemonSet and the web UI have the image of the operator, and what pulls it.
func TestChart_ImageValues_ReachAllPods(t *testing.T) {
	values := set("nodeRetention=true", "ui=true", "image.repository=registry.example.com/gleaner", "image.tag=v1", "image.pullPolicy=Always", "imagePullSecrets[0].name=registry")
	out := mustHelm(t, append([]string{"template", name, chart, "-n", namespace, "--no-hooks", version}, values...)...)
	pods := 0
	for key, object := range parse(t, []byte(out)) {
		o := unstructured.Unstructured{Object: object.(map[string]any)}
		spec, found, err := unstructured.NestedMap(o.Object, "spec", "template", "spec")
		if err != nil {
			t.Fatal(err)
		}
		if !found {
			continue
		}
		pods++
		container := spec["containers"].([]any)[0].(map[string]any)
		got := []any{container["image"], container["imagePullPolicy"], spec["imagePullSecrets"]}
		if diff := cmp.Diff([]any{"registry.example.com/gleaner:v1", "Always", []any{map[string]any{"name": "registry"}}}, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", key, diff)
		}
	}
	if pods != 3 {
		t.Errorf("%d objects with pods, want the operator, the DaemonSet and the web UI", pods)
	}
}

func TestChart_InTheNamespaceOfItsOtherPods_IsRejected(t *testing.T) {
	for _, taken := range []string{"gleaner-node", "gleaner-ui"} {
		if _, err := helm(t, "template", name, chart, "-n", taken, version); err == nil || !strings.Contains(err.Error(), "use another one, such as gleaner-system") {
			t.Errorf("%s: got %v", taken, err)
		}
	}
}

// The objects are those that docs/howto/sign-modules.md has kustomize make, but for the name of the ConfigMap, of
// which kustomize makes a hash.
func TestChart_TrustedSigners_AreFilesOfTheOperator(t *testing.T) {
	root := filepath.Join(t.TempDir(), "root.json")
	if err := os.WriteFile(root, []byte("{\n  \"mediaType\": \"x\"\n}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	values := []string{"signatures.required=true", "signatures.trustedSigners[0].identity.issuer=https://accounts.example.com", "signatures.trustedSigners[0].identity.subject=jane@example.com"}
	out := mustHelm(t, append([]string{"template", name, chart, "-n", namespace, version, "--set-file", "signatures.trustedRoot=" + root}, set(values...)...)...)
	objects := parse(t, []byte(out))
	trust, _ := objects["ConfigMap/"+namespace+"/gleaner-trust"].(map[string]any)
	data, _ := trust["data"].(map[string]any)
	want := map[string]any{
		"signers.yaml":      "signers:\n- identity:\n    issuer: https://accounts.example.com\n    subject: jane@example.com\n",
		"trusted_root.json": "{\n  \"mediaType\": \"x\"\n}\n",
	}
	if diff := cmp.Diff(want, data); diff != "" {
		t.Errorf("data of the ConfigMap (-want +got):\n%s", diff)
	}
	for _, part := range []string{
		"- --require-signatures", "- --trusted-signers=/etc/gleaner/trust/signers.yaml", "- --trusted-root=/etc/gleaner/trust/trusted_root.json",
		"mountPath: /etc/gleaner/trust", "name: gleaner-trust", "checksum/trust: ",
	} {
		if !strings.Contains(out, part) {
			t.Errorf("%q is missing", part)
		}
	}
}

func TestChart_InvalidValues_AreRejected(t *testing.T) {
	for value, want := range map[string]string{
		"mode=solo":                                       "'companion', 'primary'",
		"replica=3":                                       "additional properties 'replica' not allowed",
		"image.digest=v1.2.3":                             "does not match pattern",
		"archive.storage=gcs":                             "'folder', 's3'",
		"archive.maxSize=much":                            "archive/maxSize",
		"archive.recordTTL=7d":                            "archive/recordTTL",
		"networkPolicy.egressPorts={0}":                   "minimum",
		"finalizerNetworks={10.0.0.1}":                    "finalizerNetworks/0",
		"extraArgs={dry-run}":                             "extraArgs/0",
		"signatures.trustedSigners[0].key=x":              "additional properties 'key' not allowed",
		"signatures.trustedSigners[0].publicKey=x":        "signatures/trustedSigners/0/publicKey",
		"signatures.trustedSigners[0].identity.subject=x": "issuer",
		"certManager=true mode=primary":                   "certManager",
		"archive.storage=folder replicas=2":               "replicas: use 1 with archive.storage=folder or leaderElection=false, or omit it",
		"leaderElection=false replicas=2":                 "replicas: use 1",
	} {
		out, err := helm(t, append([]string{"template", name, chart, version}, set(strings.Fields(value)...)...)...)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got error %v, want one with %q\n%.300s", value, err, want, out)
		}
	}
}

func TestChart_PassesHelmLint(t *testing.T) {
	for _, values := range [][]string{nil, {"mode=primary", "webhooks=true", "monitoring=true", "archive.storage=s3", "retention=true", "tenants=true", "certManager=true", "nodeRetention=true", "ui=true"}} {
		out := mustHelm(t, append([]string{"lint", chart, "--strict", version}, set(values...)...)...)
		if !strings.Contains(out, "0 chart(s) failed") {
			t.Error(out)
		}
	}
}

// kustomize returns the objects of overlays in config with components, by kind, namespace and name.
func kustomize(t *testing.T, overlays, components []string) map[string]any {
	t.Helper()
	folder, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	config, err := filepath.Abs("../../config")
	if err != nil {
		t.Fatal(err)
	}
	if config, err = filepath.Rel(folder, config); err != nil {
		t.Fatal(err)
	}
	k := map[string]any{"resources": prefixed(config, overlays), "components": prefixed(filepath.Join(config, "components"), components)}
	text, err := yaml.Marshal(k)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "kustomization.yaml"), text, 0o600); err != nil {
		t.Fatal(err)
	}
	objects, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), folder)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := objects.AsYaml()
	if err != nil {
		t.Fatal(err)
	}
	return parse(t, manifest)
}

func prefixed(folder string, names []string) []string {
	paths := make([]string, len(names))
	for i, name := range names {
		paths[i] = filepath.Join(folder, name)
	}
	return paths
}

// parse returns the objects of a manifest by kind, namespace and name, without what only one of Helm and kustomize adds.
func parse(t *testing.T, manifest []byte) map[string]any {
	t.Helper()
	objects := map[string]any{}
	for part := range strings.SplitSeq("\n"+string(manifest), "\n---\n") {
		var o unstructured.Unstructured
		if err := yaml.Unmarshal([]byte(part), &o.Object); err != nil {
			t.Fatalf("%v\n%s", err, part)
		}
		if len(o.Object) == 0 {
			continue
		}
		labels := o.GetLabels()
		for _, added := range []string{"app.kubernetes.io/name", "app.kubernetes.io/part-of", "app.kubernetes.io/instance", "app.kubernetes.io/version", "app.kubernetes.io/managed-by", "helm.sh/chart"} {
			delete(labels, added)
		}
		o.SetLabels(unlessEmpty(labels))
		annotations := o.GetAnnotations()
		delete(annotations, "helm.sh/resource-policy")
		o.SetAnnotations(unlessEmpty(annotations))
		sortVolumes(t, &o)
		key := strings.ReplaceAll(o.GetKind()+"/"+o.GetNamespace()+"/"+o.GetName(), "//", "/")
		if objects[key] != nil {
			t.Errorf("%s occurs twice", key)
		}
		objects[key] = o.Object
	}
	return objects
}

func unlessEmpty(m map[string]string) map[string]string {
	if len(m) == 0 {
		return nil
	}
	return m
}

// sortVolumes sorts the volumes of a Deployment: their order doesn't matter.
func sortVolumes(t *testing.T, o *unstructured.Unstructured) {
	t.Helper()
	if o.GetKind() != "Deployment" {
		return
	}
	spec, ok, err := unstructured.NestedMap(o.Object, "spec", "template", "spec")
	if !ok {
		t.Fatalf("%s has no pods: %v", o.GetName(), err)
	}
	byName := func(list any) {
		items, _ := list.([]any) // none is fine
		slices.SortFunc(items, func(a, b any) int {
			return strings.Compare(a.(map[string]any)["name"].(string), b.(map[string]any)["name"].(string))
		})
	}
	byName(spec["volumes"])
	byName(spec["containers"].([]any)[0].(map[string]any)["volumeMounts"])
	if err := unstructured.SetNestedMap(o.Object, spec, "spec", "template", "spec"); err != nil {
		t.Fatal(err)
	}
}
