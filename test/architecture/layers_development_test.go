package architecture

// developmentLayers are the rows of what develops, tests and builds Gleaner.
var developmentLayers = map[string]layer{
	"devcluster/child":                      {},
	"devcluster/child/childtest":            {},
	"devcluster/freeport":                   {},
	"devcluster/gobuild":                    {},
	"devcluster/binaries/basic-controllers": {anything: true}, // a module of its own
	"devcluster/download":                   {external: []string{"github.com/go-logr/logr", "sigs.k8s.io/controller-runtime/tools/setup-envtest"}},
	"devcluster/download/downloadtest":      {},
	"devcluster": {
		internal: []string{"devcluster/child", "devcluster/download", "devcluster/freeport", "devcluster/gobuild"},
		external: []string{"golang.org/x/sync", "k8s.io/api", "k8s.io/apimachinery", "k8s.io/client-go"},
	},
	"devcluster/devtest": {
		internal: []string{"devcluster", "devcluster/freeport"},
		external: []string{"k8s.io/api", "k8s.io/apimachinery", "k8s.io/client-go", "k8s.io/utils"},
	},
	"devcluster/node": {
		internal: []string{"devcluster", "devcluster/freeport"},
		external: []string{"github.com/google/go-containerregistry/pkg/v1", "k8s.io/api", "k8s.io/apimachinery", "k8s.io/client-go"},
	},
	"devcluster/node/linger":   {},
	"devcluster/node/nodetest": {internal: []string{"devcluster", "devcluster/node"}},
	"devcluster/s3server":      {internal: []string{"devcluster/freeport", "devcluster/gobuild"}, external: []string{"github.com/aws/aws-sdk-go-v2/aws"}},
	"test/bench":               {anything: true},
	"test/soak":                {anything: true},
	"test/attacks/payload": {
		internal: []string{"policies/wasm/asm"},
		external: []string{"k8s.io/apimachinery"},
	},
	"test/proxy": {
		internal: []string{"devcluster"},
		external: []string{"k8s.io/apimachinery", "k8s.io/apiserver", "k8s.io/client-go"},
	},
	"test/browse":    {internal: []string{"devcluster/devtest", "devcluster/gobuild"}},
	"test/browser":   {external: []string{"github.com/chromedp"}},
	"test/npm":       {},
	"test/s3":        {external: []string{"github.com/versity/versitygw"}},
	"test/inprocess": {anything: true},
	"test/program":   {internal: []string{"devcluster/child"}},
	"test/objects": {
		internal: []string{"devcluster/devtest", "operator/restore"},
		external: []string{"github.com/google/go-cmp/cmp", "k8s.io/apimachinery", "k8s.io/client-go", "sigs.k8s.io/yaml"},
	},
	"test/pins": {
		internal: []string{"policies/source"},
		external: []string{"k8s.io/apimachinery", "sigs.k8s.io/yaml"},
	},
	"test/integration/hook": {
		internal: []string{"devcluster", "devcluster/devtest"},
		external: []string{"k8s.io/api", "k8s.io/apimachinery", "k8s.io/client-go"},
	},
	"tools/image": {internal: []string{"policies/source/oci"}, external: []string{"github.com/google/go-containerregistry/pkg/v1"}},
	"tools/build": {internal: []string{"devcluster/gobuild"}},
	"tools/release": {external: []string{
		"github.com/CycloneDX/cyclonedx-go", "github.com/CycloneDX/cyclonedx-gomod/pkg/generate/bin", "github.com/rs/zerolog", "helm.sh/helm/v4/pkg/chart/v2/loader", "helm.sh/helm/v4/pkg/registry", "k8s.io/apimachinery", "sigs.k8s.io/krew/pkg/index",
		"sigs.k8s.io/kustomize/api", "sigs.k8s.io/kustomize/kyaml/filesys", "sigs.k8s.io/yaml",
	}},
	"tools/setup": {internal: []string{"devcluster", "devcluster/node", "devcluster/s3server"}},
	"tools/schema": {
		internal: []string{"hostabi"},
		external: []string{"github.com/invopop/jsonschema"},
	},
}
