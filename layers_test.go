package gleaner_test

// layers is the architecture: one row for each package, by folder. A package
// gets its row before it gets its first file.
var layers = map[string]layer{
	"hostabi":          {},
	"policies":         {internal: []string{"hostabi"}, external: []string{"k8s.io/apimachinery"}},
	"policies/builtin": {internal: []string{"hostabi", "policies"}},
	"policies/fixed":   {internal: []string{"hostabi", "policies"}},
	"policies/policytest": {
		internal: []string{"hostabi", "policies"},
		external: []string{"github.com/google/go-cmp", "sigs.k8s.io/yaml"},
	},

	"policies/wasm/fuel": {pure: true},
	"policies/wasm/asm":  {},
	"policies/wasm/sandbox": {
		internal: []string{"policies/wasm/fuel"},
		external: []string{"github.com/tetratelabs/wazero", "golang.org/x/sys"},
	},
	"policies/wasm": {
		internal: []string{"hostabi", "policies", "policies/wasm/fuel", "policies/wasm/sandbox"},
		external: []string{"github.com/tetratelabs/wazero"},
	},

	"policies/worker": {
		internal: []string{"hostabi", "policies", "policies/wasm/sandbox", "policies/worker/confine", "policies/worker/wire"},
		external: []string{"github.com/go-logr/logr"},
	},
	"policies/worker/wire": {},
	"policies/worker/serve": {
		internal: []string{"hostabi", "policies", "policies/rego", "policies/wasm", "policies/wasm/sandbox", "policies/worker/confine", "policies/worker/wire"},
	},
	"policies/worker/confine": {
		external: []string{"github.com/elastic/go-seccomp-bpf", "github.com/landlock-lsm/go-landlock/landlock", "golang.org/x/sys"},
	},

	"policies/rego": {
		internal: []string{"hostabi", "policies", "policies/wasm/fuel", "policies/wasm/sandbox", "sdk/rego"},
		external: []string{"github.com/open-policy-agent/opa/v1", "github.com/tetratelabs/wazero/api"},
	},
	"sdk/rego":         {},
	"policies/library": {},

	"policies/source": {
		internal: []string{"policies/source/egress", "policies/source/oci"},
		external: []string{"github.com/google/go-containerregistry/pkg/v1"},
	},
	"policies/source/egress": {},
	"policies/source/oci":    {external: []string{"github.com/google/go-containerregistry/pkg/v1"}},

	"operator/statekey": {pure: true, external: []string{"k8s.io/apimachinery"}},
	"operator/keystore": {
		internal: []string{"operator/statekey"},
		external: []string{"github.com/go-logr/logr", "k8s.io/api", "k8s.io/apimachinery", "k8s.io/client-go"},
	},
	"operator/writelimit": {external: []string{"golang.org/x/time/rate"}},

	"operator/memo":    {pure: true, internal: []string{"hostabi", "operator/statekey"}, external: []string{"k8s.io/apimachinery"}},
	"operator/graph":   {pure: true, internal: []string{"operator/memo"}, external: []string{"k8s.io/apimachinery", "k8s.io/utils"}},
	"operator/catalog": {pure: true, external: []string{"k8s.io/apimachinery"}},
	"operator/decide": {
		pure:     true,
		internal: []string{"hostabi", "operator/graph", "operator/memo"},
		external: []string{"k8s.io/apimachinery"},
	},
	"operator/consult": {
		internal: []string{"hostabi", "policies", "operator/catalog", "operator/decide", "operator/graph", "operator/intents", "operator/memo", "operator/statekey"},
		external: []string{"k8s.io/apimachinery", "k8s.io/client-go"},
	},
	"operator/intents": {
		internal: []string{"hostabi", "policies", "policies/source/egress", "operator/catalog", "operator/writelimit"},
		external: []string{
			"github.com/aws/aws-sdk-go-v2/aws", "github.com/go-logr/logr", "golang.org/x/net/http/httpguts", "golang.org/x/net/idna",
			"k8s.io/api", "k8s.io/apimachinery", "k8s.io/client-go", "k8s.io/klog/v2",
		},
	},
	"operator/finalize": {
		internal: []string{"hostabi", "policies", "operator/catalog", "operator/consult", "operator/graph", "operator/intents", "operator/memo", "operator/statekey", "operator/writelimit"},
		external: []string{"github.com/go-logr/logr", "k8s.io/api", "k8s.io/apimachinery", "k8s.io/client-go"},
	},
	"operator/latest": {},
	"operator/modulestore": {
		internal: []string{"hostabi", "policies", "policies/source", "crds/v1alpha1", "operator/latest"},
		external: []string{"k8s.io/apimachinery"},
	},
	"operator/modulestore/workers": {
		internal: []string{"hostabi", "policies/wasm/sandbox", "policies/worker", "crds/v1alpha1", "operator/modulestore"},
	},
	"operator/modules": {
		internal: []string{
			"hostabi", "policies", "policies/fixed", "policies/source", "policies/source/egress",
			"crds/v1alpha1", "operator/graph", "operator/modulestore", "operator/modulestore/workers", "policies/worker",
		},
		external: []string{
			"github.com/go-logr/logr", "github.com/google/cel-go", "k8s.io/api", "k8s.io/apimachinery", "k8s.io/apiserver",
			"k8s.io/client-go", "k8s.io/utils", "sigs.k8s.io/controller-runtime",
		},
	},
	"operator/watch": {
		internal: []string{"operator/catalog", "operator/graph"},
		external: []string{
			"github.com/go-logr/logr", "golang.org/x/sync",
			"k8s.io/apimachinery", "k8s.io/client-go", "k8s.io/kube-aggregator", "k8s.io/utils",
		},
	},
	"operator/veto": {external: []string{"github.com/go-logr/logr", "k8s.io/api", "k8s.io/apimachinery"}},
	"operator/certs": {
		external: []string{
			"github.com/go-logr/logr", "github.com/open-policy-agent/cert-controller",
			"k8s.io/api", "k8s.io/apimachinery", "k8s.io/client-go", "sigs.k8s.io/controller-runtime",
		},
	},
	"operator/gather": {
		internal: []string{"operator/catalog", "operator/decide", "operator/graph"},
		external: []string{"golang.org/x/sync", "k8s.io/apimachinery", "k8s.io/client-go"},
	},
	"operator/survey": {
		internal: []string{"operator/catalog", "operator/decide", "operator/gather", "operator/graph", "operator/watch"},
		external: []string{"golang.org/x/sync", "k8s.io/apimachinery", "k8s.io/client-go", "k8s.io/kube-aggregator"},
	},
	"operator/preview": {
		internal: []string{
			"crds/v1alpha1", "hostabi", "operator/catalog", "operator/consult", "operator/decide", "operator/gather", "operator/graph", "operator/intents",
			"operator/loop", "operator/modules", "operator/record", "operator/statekey", "operator/survey", "policies", "policies/builtin", "policies/source",
		},
		external: []string{
			"github.com/go-logr/logr", "k8s.io/apimachinery", "k8s.io/client-go", "k8s.io/utils", "sigs.k8s.io/controller-runtime",
		},
	},
	"operator/escape":   {pure: true},
	"operator/networks": {external: []string{"k8s.io/api", "k8s.io/apimachinery", "k8s.io/client-go"}},
	"operator/act": {
		internal: []string{"operator/catalog", "operator/decide", "operator/graph", "operator/memo", "operator/statekey"},
		external: []string{"k8s.io/apimachinery", "k8s.io/client-go", "k8s.io/utils"},
	},
	"operator/record": {
		internal: []string{"hostabi", "policies", "operator/decide", "operator/graph"},
		external: []string{"k8s.io/apimachinery"},
	},
	"operator/release": {
		internal: []string{"operator/graph", "operator/memo"},
		external: []string{"k8s.io/apimachinery", "k8s.io/client-go", "k8s.io/utils"},
	},
	"operator/canary": {
		external: []string{"k8s.io/api", "k8s.io/apimachinery", "k8s.io/client-go", "k8s.io/utils"},
	},
	"operator/debug": {
		internal: []string{"hostabi", "operator/escape", "operator/graph", "operator/record"},
		external: []string{"github.com/go-logr/logr", "k8s.io/apimachinery", "k8s.io/apiserver", "k8s.io/client-go"},
	},
	"operator/loop": {
		internal: []string{
			"hostabi", "policies", "policies/source/egress", "policies/worker",
			"operator/act", "operator/canary", "operator/catalog", "operator/consult", "operator/debug", "operator/decide", "operator/escape", "operator/finalize",
			"operator/gather", "operator/graph", "operator/intents", "operator/keystore", "operator/memo", "operator/modules", "operator/networks", "operator/record",
			"operator/statekey", "operator/veto", "operator/watch", "operator/writelimit",
		},
		external: []string{
			"github.com/go-logr/logr", "github.com/prometheus",
			"k8s.io/api", "k8s.io/apimachinery", "k8s.io/client-go", "k8s.io/kube-aggregator", "k8s.io/utils",
			"sigs.k8s.io/controller-runtime",
		},
	},

	"crds": {external: []string{"k8s.io/apiextensions-apiserver/pkg/apis", "sigs.k8s.io/yaml"}},
	"crds/v1alpha1": {
		external: []string{"k8s.io/apiextensions-apiserver/pkg/apis", "k8s.io/apimachinery"},
	},

	"crds/admit": {
		internal: []string{"crds"},
		external: []string{"k8s.io/apiextensions-apiserver/pkg", "k8s.io/apimachinery", "k8s.io/apiserver"},
	},

	"cmd/gleaner/ask/replicas": {
		internal: []string{"operator/debug", "operator/record"},
		external: []string{"golang.org/x/sync", "k8s.io/api", "k8s.io/apimachinery", "k8s.io/client-go", "k8s.io/utils"},
	},
	"cmd/gleaner/ask/whose": {
		internal: []string{"crds/v1alpha1", "operator/graph", "operator/release", "policies"},
		external: []string{"k8s.io/apimachinery", "sigs.k8s.io/controller-runtime", "sigs.k8s.io/structured-merge-diff"},
	},

	"cmd/gleaner/ask/explain": {
		internal: []string{"cmd/gleaner/ask/replicas", "cmd/gleaner/ask/whose", "operator/decide", "operator/graph", "operator/record", "operator/survey"},
		external: []string{"k8s.io/api", "k8s.io/apimachinery", "k8s.io/client-go", "sigs.k8s.io/controller-runtime"},
	},

	"cmd/gleaner/ask/monitor": {
		internal: []string{"cmd/gleaner/ask/replicas", "hostabi", "operator/record"},
		external: []string{"k8s.io/apimachinery"},
	},

	"cmd/gleaner/ask/rights": {
		internal: []string{"cmd/gleaner/ask/whose", "crds/v1alpha1", "operator/escape"},
		external: []string{"golang.org/x/sync", "k8s.io/api", "k8s.io/apimachinery", "k8s.io/client-go"},
	},
	"cmd/gleaner/ask/doctor": {
		internal: []string{"cmd/gleaner/ask/replicas", "cmd/gleaner/ask/rights", "cmd/gleaner/ask/whose", "crds", "crds/v1alpha1", "operator/graph", "operator/release"},
		external: []string{
			"k8s.io/api", "k8s.io/apiextensions-apiserver/pkg", "k8s.io/apimachinery", "k8s.io/client-go", "k8s.io/kube-aggregator", "k8s.io/utils",
			"sigs.k8s.io/controller-runtime",
		},
	},
	"cmd/gleaner/ask/stuck": {
		internal: []string{"cmd/gleaner/ask/whose", "operator/graph", "operator/record", "operator/survey"},
		external: []string{"golang.org/x/sync", "k8s.io/api", "k8s.io/apimachinery", "k8s.io/client-go", "sigs.k8s.io/controller-runtime"},
	},

	"cmd/gleaner": {anything: true},
	"cmd/gleaner/kubectl": {
		internal: []string{"operator/escape"},
		external: []string{
			"github.com/spf13/cobra", "github.com/spf13/pflag", "k8s.io/apimachinery", "k8s.io/cli-runtime", "k8s.io/client-go", "sigs.k8s.io/yaml",
		},
	},

	"devcluster/gobuild":                    {},
	"devcluster/binaries/basic-controllers": {anything: true}, // a module of its own
	"devcluster": {
		internal: []string{"devcluster/gobuild"},
		external: []string{"golang.org/x/sync", "k8s.io/api", "k8s.io/apimachinery", "k8s.io/client-go"},
	},
	"devcluster/devtest": {
		internal: []string{"devcluster"},
		external: []string{"k8s.io/api", "k8s.io/apimachinery", "k8s.io/client-go", "k8s.io/utils"},
	},
	"devcluster/node": {
		internal: []string{"devcluster"},
		external: []string{"github.com/google/go-containerregistry/pkg/v1", "k8s.io/api", "k8s.io/apimachinery", "k8s.io/client-go"},
	},
	"devcluster/node/linger":   {},
	"devcluster/node/nodetest": {internal: []string{"devcluster", "devcluster/node"}},
	"devcluster/s3server":      {internal: []string{"devcluster/gobuild"}, external: []string{"github.com/aws/aws-sdk-go-v2/aws"}},
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
	"test/s3":     {external: []string{"github.com/versity/versitygw"}},
	"test/inside": {anything: true},
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
	"tools/setup": {internal: []string{"devcluster", "devcluster/node", "devcluster/s3server"}},
	"tools/schema": {
		internal: []string{"hostabi"},
		external: []string{"github.com/invopop/jsonschema"},
	},

	"sdk/go":                    {internal: []string{"hostabi", "sdk/go/internal/guest"}},
	"sdk/go/finalize":           {internal: []string{"hostabi"}},
	"sdk/go/gleanertest":        {internal: []string{"hostabi", "sdk/go", "sdk/go/internal/guest"}},
	"sdk/go/internal/guest":     {internal: []string{"hostabi"}},
	"sdk/go/examples/keep-data": {internal: []string{"sdk/go"}},

	"examples/bucket-finalizer":     {internal: []string{"sdk/go", "sdk/go/finalize"}},
	"examples/drain-before-delete":  {internal: []string{"sdk/go", "sdk/go/finalize"}},
	"examples/backup-before-delete": {internal: []string{"sdk/go", "sdk/go/finalize"}},
	"examples/dns-finalizer/server": {},
}
