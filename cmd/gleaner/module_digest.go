package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/gleaner-dev/gleaner/cmd/gleaner/kubectl"
	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/policies/source"
)

const digestLong = `Print the digest of a module, as policies and finalizers name it in module.digest. In mode Enforce, and with grants,
they need it: then editing the module never changes what they do.

FILE is a module: WebAssembly, plain or compressed with gzip, or files or a folder of Rego. With -f, it is a manifest with
PolicyModules or ClusterPolicyModules whose content is inline, in a ConfigMap of the manifest, or has a sha256. KIND/NAME is
a module in a cluster, whose digest is that in its status: it is the content that the operator has fetched, so review that.`

// digested is a module of a manifest.
type digested struct{ name, digest string }

func moduleDigest() *cobra.Command {
	f := kubectl.NewFlags()
	cmd := &cobra.Command{
		Use:   "digest {FILE... | -f MANIFEST | KIND/NAME}",
		Short: "Print the digest that policies and finalizers name in module.digest",
		Long:  digestLong,
		Example: `  gleaner module digest policy.rego
  gleaner module digest -f module.yaml
  gleaner module digest clusterpolicymodule/keep-data`,
		RunE: func(cmd *cobra.Command, args []string) error {
			list, err := digests(cmd.Context(), f, cmd, args)
			if err != nil {
				return err
			}
			for _, m := range list {
				if len(list) == 1 {
					m.name = ""
				}
				kubectl.Fprintln(cmd.OutOrStdout(), strings.TrimSpace(m.digest+"  "+m.name))
			}
			return nil
		},
	}
	f.AddTo(cmd)
	cmd.Flags().StringArrayVarP(&f.Files, "filename", "f", nil, "manifest `file` with modules; - is the standard input")
	return cmd
}

// digests returns the digests of whatever the command line names.
func digests(ctx context.Context, f *kubectl.Flags, cmd *cobra.Command, args []string) ([]digested, error) {
	switch {
	case len(f.Files) != 0 && len(args) != 0:
		return nil, kubectl.Usage("-f %s and %s: use one of them", strings.Join(f.Files, " "), strings.Join(args, " "))
	case len(f.Files) != 0:
		return manifestDigests(ctx, f.Files)
	case len(args) == 0:
		return nil, someModule(cmd, args)
	case len(args) == 1 && namesModule(args[0]):
		digest, err := clusterDigest(ctx, f, args)
		return []digested{{args[0], digest}}, err
	default:
		digest, err := fileDigest(args)
		return []digested{{args[0], digest}}, err
	}
}

// namesModule reports whether an argument is KIND/NAME of a module, and not a file.
func namesModule(arg string) bool {
	kind, _, slash := strings.Cut(arg, "/")
	kind, _, _ = strings.Cut(strings.ToLower(kind), ".")
	switch kind {
	case "policymodule", "policymodules", "pmod", "clusterpolicymodule", "clusterpolicymodules", "cpmod":
	default:
		return false
	}
	_, err := os.Stat(arg)
	return slash && os.IsNotExist(err)
}

// fileDigest is the digest of a module in files, whether it compiles or not.
func fileDigest(names []string) (string, error) {
	rego, err := regoFiles(names)
	if err != nil {
		return "", err
	}
	if len(rego) == 0 && len(names) != 1 {
		return "", kubectl.Usage("several files are taken together only if all are Rego; name one module")
	}
	files, _, err := packModule(names)
	if err != nil {
		return "", err
	}
	if len(rego) == 0 && !bytes.HasPrefix(files[0].Data, []byte("\x00asm")) {
		return "", fmt.Errorf("%s is neither WebAssembly nor named .rego: for a manifest, write -f %[1]s", names[0])
	}
	return source.Digest(files), nil
}

// clusterDigest is the digest in the status of a module.
func clusterDigest(ctx context.Context, f *kubectl.Flags, args []string) (string, error) {
	t, err := f.Target(ctx, args)
	if err != nil {
		return "", err
	}
	digest, _, _ := unstructured.NestedString(t.Object.Object, "status", "digest")
	observed, _, _ := unstructured.NestedInt64(t.Object.Object, "status", "observedGeneration")
	switch {
	case observed != t.Object.GetGeneration():
		return "", fmt.Errorf("read digest of %s: the operator has not observed this generation yet: try again, or see gleaner doctor", t)
	case digest == "":
		return "", fmt.Errorf("read digest of %s: it is not fetched or does not compile: see its conditions with kubectl describe", t)
	}
	return digest, nil
}

// manifestDigests are the digests of the modules of manifests.
func manifestDigests(ctx context.Context, names []string) ([]digested, error) {
	objects, err := kubectl.Load(names)
	if err != nil {
		return nil, err
	}
	fetcher, err := source.New(source.Config{})
	if err != nil {
		return nil, err
	}
	defer fetcher.Close()
	var list []digested
	for _, o := range objects {
		kind := o.GroupVersionKind().GroupKind()
		if kind.Group != v1alpha1.GroupVersion.Group || kind.Kind != "PolicyModule" && kind.Kind != "ClusterPolicyModule" {
			continue
		}
		digest, err := manifestDigest(ctx, fetcher, o, objects)
		if err != nil {
			return nil, fmt.Errorf("compute digest of %s %s: %w", kind.Kind, o.GetName(), err)
		}
		list = append(list, digested{strings.ToLower(kind.Kind) + "/" + o.GetName(), digest})
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("there is no PolicyModule or ClusterPolicyModule in %s", strings.Join(names, ", "))
	}
	return list, nil
}

func manifestDigest(ctx context.Context, fetcher *source.Fetcher, o *unstructured.Unstructured, all []*unstructured.Unstructured) (string, error) {
	var m v1alpha1.PolicyModule // a ClusterPolicyModule has the same spec
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &m); err != nil {
		return "", err
	}
	s := source.Source{Language: source.Wasm, SHA256: m.Spec.SHA256}
	var ref *v1alpha1.ConfigMapKeyReference
	switch {
	case m.Spec.Rego != nil && m.Spec.Rego.Inline != nil:
		s.Language, s.Inline = source.Rego, *m.Spec.Rego.Inline
	case m.Spec.Rego != nil && m.Spec.Rego.ConfigMap != nil:
		s.Language, ref = source.Rego, m.Spec.Rego.ConfigMap
	case m.Spec.Wasm != nil && m.Spec.Wasm.ConfigMap != nil:
		ref = m.Spec.Wasm.ConfigMap
	}
	if ref != nil {
		s.ConfigMap = configMapIn(all, *ref, o.GetNamespace())
	}
	switch {
	case s.Inline == "" && s.ConfigMap == nil && s.SHA256 != "":
		return s.SHA256, nil
	case s.Inline == "" && s.ConfigMap == nil:
		return "", fmt.Errorf("its content is not in the manifest: give its files, or KIND/NAME once it is applied")
	}
	fetched, err := fetcher.Fetch(ctx, s)
	return fetched.Digest, err
}

// configMapIn is a ConfigMap of the manifests; nil if it is not there.
func configMapIn(all []*unstructured.Unstructured, ref v1alpha1.ConfigMapKeyReference, own string) *source.ConfigMap {
	namespace := ref.Namespace
	if namespace == "" {
		namespace = own
	}
	for _, o := range all {
		if o.GetKind() != "ConfigMap" || o.GroupVersionKind().Group != "" || o.GetName() != ref.Name || o.GetNamespace() != namespace {
			continue
		}
		var c struct {
			Data       map[string]string `json:"data"`
			BinaryData map[string][]byte `json:"binaryData"`
		}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &c); err == nil {
			return &source.ConfigMap{Name: ref.Name, Key: ref.Key, Data: c.Data, BinaryData: c.BinaryData}
		}
	}
	return nil
}
