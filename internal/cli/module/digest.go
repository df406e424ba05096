package module

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/internal/cli/exit"
	"github.com/gleaner-dev/gleaner/internal/cli/kubectl"
	"github.com/gleaner-dev/gleaner/internal/cli/loader"
	"github.com/gleaner-dev/gleaner/internal/cli/printer"
	"github.com/gleaner-dev/gleaner/policies/source"
)

const digestLong = `Print the digest of a module, for module.digest of policies and finalizers. In Enforce mode, and with grants, it is required:
changes of the module then have no effect until the digest is changed as well.

FILE is a module: a WebAssembly file, optionally compressed with gzip, or Rego files or a directory of them. With -f, it is a
manifest with PolicyModules or ClusterPolicyModules whose content is inline, in a ConfigMap of the manifest, or has a sha256.
KIND/NAME is a module in a cluster, whose digest is read from its status: review the content that the operator fetched.`

// moduleWithDigest is a module and its digest.
type moduleWithDigest struct{ name, digest string }

func moduleDigest() *cobra.Command {
	f := kubectl.NewFlags()
	cmd := &cobra.Command{
		Use:   "digest {FILE... | -f MANIFEST | KIND/NAME}",
		Short: "Print the digest of a module, for module.digest of policies and finalizers",
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
				printer.Fprintln(cmd.OutOrStdout(), strings.TrimSpace(m.digest+"  "+m.name))
			}
			return nil
		},
	}
	f.AddTo(cmd)
	cmd.Flags().StringArrayVarP(&f.Files, "filename", "f", nil, "manifest `file` with modules; - is standard input")
	return cmd
}

// digests returns the digests of the modules on the command line.
func digests(ctx context.Context, f *kubectl.Flags, cmd *cobra.Command, args []string) ([]moduleWithDigest, error) {
	switch {
	case len(f.Files) != 0 && len(args) != 0:
		return nil, exit.Usagef("-f %s and %s: use one of them", strings.Join(f.Files, " "), strings.Join(args, " "))
	case len(f.Files) != 0:
		return manifestDigests(ctx, f.Files)
	case len(args) == 0:
		return nil, requireModule(cmd, args)
	case len(args) == 1 && namesModule(args[0]):
		digest, err := clusterDigest(ctx, f, args)
		return []moduleWithDigest{{args[0], digest}}, err
	default:
		digest, err := fileDigest(args)
		return []moduleWithDigest{{args[0], digest}}, err
	}
}

// namesModule reports whether an argument is KIND/NAME of a module rather than a file.
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

// fileDigest returns the digest of a module in files, without compiling it.
func fileDigest(names []string) (string, error) {
	rego, err := loader.RegoFiles(names)
	if err != nil {
		return "", err
	}
	if len(rego) == 0 && len(names) != 1 {
		return "", exit.Usagef("only Rego modules can have several files: name one module")
	}
	files, _, err := packModule(names)
	if err != nil {
		return "", err
	}
	if len(rego) == 0 && !bytes.HasPrefix(files[0].Data, []byte("\x00asm")) {
		return "", fmt.Errorf("%s is neither WebAssembly nor a .rego file: for a manifest, use -f %[1]s", names[0])
	}
	return source.Digest(files), nil
}

// clusterDigest returns the digest in the status of a module.
func clusterDigest(ctx context.Context, f *kubectl.Flags, args []string) (string, error) {
	t, err := f.Target(ctx, args)
	if err != nil {
		return "", err
	}
	digest, _, _ := unstructured.NestedString(t.Object.Object, "status", "digest")
	observed, _, _ := unstructured.NestedInt64(t.Object.Object, "status", "observedGeneration")
	switch {
	case observed != t.Object.GetGeneration():
		return "", fmt.Errorf("read digest of %s: the operator has not observed this generation yet: try again, or run gleaner doctor", t)
	case digest == "":
		return "", fmt.Errorf("read digest of %s: the module was not fetched or does not compile: see its conditions with kubectl describe", t)
	}
	return digest, nil
}

// manifestDigests returns the digests of the modules in manifests.
func manifestDigests(ctx context.Context, names []string) ([]moduleWithDigest, error) {
	objects, err := kubectl.Load(names)
	if err != nil {
		return nil, err
	}
	fetcher, err := source.New(source.Config{})
	if err != nil {
		return nil, err
	}
	defer fetcher.Close()
	var list []moduleWithDigest
	for _, o := range objects {
		kind := o.GroupVersionKind().GroupKind()
		if kind.Group != v1alpha1.GroupVersion.Group || kind.Kind != "PolicyModule" && kind.Kind != "ClusterPolicyModule" {
			continue
		}
		digest, err := manifestDigest(ctx, fetcher, o, objects)
		if err != nil {
			return nil, fmt.Errorf("compute digest of %s %s: %w", kind.Kind, o.GetName(), err)
		}
		list = append(list, moduleWithDigest{strings.ToLower(kind.Kind) + "/" + o.GetName(), digest})
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("no PolicyModule or ClusterPolicyModule found in %s", strings.Join(names, ", "))
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
		return "", fmt.Errorf("its content is not in the manifest: use its files, or KIND/NAME after it is applied")
	}
	fetched, err := fetcher.Fetch(ctx, s)
	return fetched.Digest, err
}

// configMapIn returns a ConfigMap of the manifests, or nil.
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
