package architecture

// cliLayers are the rows of the command line.
var cliLayers = map[string]layer{
	"internal/cli/archive": {
		internal: []string{
			"internal/cli/arguments", "internal/cli/entries", "internal/cli/exit", "internal/cli/kubectl", "internal/cli/printer", "operator/archive", "operator/restore",
		},
		external: []string{
			"filippo.io/age", "github.com/pmezard/go-difflib/difflib", "github.com/spf13/cobra", "github.com/spf13/pflag", "k8s.io/apimachinery", "k8s.io/client-go", "sigs.k8s.io/yaml",
		},
	},
	"internal/cli/arguments": {
		internal: []string{"internal/cli/exit"},
		external: []string{"github.com/spf13/cobra"},
	},
	"internal/cli/buildinfo": {
		internal: []string{"internal/cli/arguments", "internal/cli/exit", "internal/cli/printer"},
		external: []string{"github.com/spf13/cobra"},
	},
	"internal/cli/cascade": {
		internal: []string{
			"internal/cli/exit", "internal/cli/input", "internal/cli/kubectl", "internal/cli/preview", "internal/cli/printer",
			"operator/cascade", "operator/catalog", "operator/graph", "operator/survey",
		},
		external: []string{"github.com/go-logr/logr", "github.com/spf13/cobra", "k8s.io/apimachinery", "k8s.io/client-go", "k8s.io/klog"},
	},
	"internal/cli/demo": {
		internal: []string{
			"devcluster", "devcluster/gobuild", "devcluster/s3server", "internal/cli/arguments", "internal/cli/dev", "internal/cli/modes", "internal/cli/printer", "internal/cli/replicas",
			"operator/companion", "operator/record", "policies/source",
		},
		external: []string{"github.com/go-logr/logr", "github.com/spf13/cobra", "k8s.io/api", "k8s.io/apimachinery", "k8s.io/client-go"},
	},
	"internal/cli/dev": {
		internal: []string{
			"crds", "devcluster", "devcluster/child", "devcluster/download", "devcluster/freeport", "internal/cli/arguments", "internal/cli/modes", "internal/cli/printer", "internal/cli/replicas", "internal/cli/run", "operator/certs",
			"operator/companion", "operator/run", "operator/validation",
		},
		external: []string{
			"github.com/go-logr/logr", "github.com/spf13/cobra", "github.com/spf13/pflag", "k8s.io/api", "k8s.io/apiextensions-apiserver", "k8s.io/apimachinery", "k8s.io/client-go",
			"k8s.io/klog", "sigs.k8s.io/controller-runtime",
		},
	},
	"internal/cli/doctor": {
		internal: []string{
			"crds", "crds/v1alpha1", "internal/cli/arguments", "internal/cli/exit", "internal/cli/finalizers", "internal/cli/kubectl", "internal/cli/permissions",
			"internal/cli/printer", "internal/cli/replicas", "operator/budgetstore", "operator/graph", "operator/pause", "operator/release",
		},
		external: []string{
			"github.com/spf13/cobra", "k8s.io/api", "k8s.io/apiextensions-apiserver", "k8s.io/apimachinery", "k8s.io/client-go", "k8s.io/kube-aggregator",
			"k8s.io/utils", "sigs.k8s.io/controller-runtime",
		},
	},
	"internal/cli/entries": {
		internal: []string{"internal/cli/exit", "internal/cli/replicas", "operator/archive", "operator/archive/open"},
		external: []string{"filippo.io/age", "github.com/spf13/pflag", "k8s.io/apimachinery", "k8s.io/client-go"},
	},
	"internal/cli/exit": {},
	"internal/cli/history": {
		internal: []string{"internal/cli/entries", "internal/cli/replicas", "operator/archive", "operator/record", "operator/recordlog"},
		external: []string{"k8s.io/client-go"},
	},
	"internal/cli/explain": {
		internal: []string{
			"crds/v1alpha1", "internal/cli/entries", "internal/cli/finalizers", "internal/cli/history", "internal/cli/kubectl", "internal/cli/printer", "internal/cli/replicas", "operator/decide", "operator/graph",
			"operator/record", "operator/survey",
		},
		external: []string{"github.com/spf13/cobra", "k8s.io/api", "k8s.io/apimachinery", "k8s.io/client-go", "sigs.k8s.io/controller-runtime"},
	},
	"internal/cli/finalizers": {
		internal: []string{"crds/resources", "crds/v1alpha1", "operator/budgetstore", "operator/graph", "operator/livelist", "operator/objectstate", "operator/pause", "operator/pausestore", "policies"},
		external: []string{"k8s.io/apimachinery", "k8s.io/client-go", "sigs.k8s.io/controller-runtime", "sigs.k8s.io/structured-merge-diff"},
	},
	"internal/cli/graph": {
		internal: []string{
			"internal/cli/exit", "internal/cli/input", "internal/cli/kubectl", "internal/cli/ownership", "internal/cli/picture", "internal/cli/printer", "operator/debug",
			"operator/decide", "operator/escape", "operator/graph",
		},
		external: []string{"github.com/spf13/cobra", "github.com/spf13/pflag", "k8s.io/apimachinery"},
	},
	"internal/cli/input": {
		internal: []string{"crds/admit", "internal/cli/kubectl", "internal/cli/printer", "operator/graph", "operator/survey"},
		external: []string{"k8s.io/apimachinery", "k8s.io/client-go"},
	},
	"internal/cli/kubectl": {
		internal: []string{"internal/cli/exit", "operator/escape"},
		external: []string{
			"github.com/go-logr/logr", "github.com/spf13/cobra", "github.com/spf13/pflag", "k8s.io/api", "k8s.io/apimachinery", "k8s.io/cli-runtime", "k8s.io/client-go",
			"sigs.k8s.io/controller-runtime/pkg/log",
		},
	},
	"internal/cli/loader": {
		internal: []string{"hostabi", "internal/cli/exit", "internal/cli/printer", "policies", "policies/rego", "policies/settings", "policies/source", "policies/wasm", "policies/wasm/sandbox"},
		external: []string{"github.com/spf13/pflag"},
	},
	"internal/cli/modes": {},
	"internal/cli/module": {
		internal: []string{
			"crds/v1alpha1", "hostabi", "internal/cli/arguments", "internal/cli/exit", "internal/cli/kubectl", "internal/cli/loader", "internal/cli/printer",
			"operator/modulestore/fetch", "policies", "policies/rego", "policies/settings", "policies/source", "policies/source/egress", "policies/source/oci", "policies/source/signature", "policies/wasm/sandbox", "sdk/go", "sdk/rego", "sdk/rust",
		},
		external: []string{"github.com/spf13/cobra", "k8s.io/apimachinery", "sigs.k8s.io/yaml"},
	},
	"internal/cli/monitor": {
		internal: []string{"hostabi", "internal/cli/arguments", "internal/cli/kubectl", "internal/cli/printer", "internal/cli/replicas", "operator/record"},
		external: []string{"github.com/spf13/cobra", "k8s.io/apimachinery", "k8s.io/client-go"},
	},
	"internal/cli/permissions": {
		internal: []string{"crds/v1alpha1", "internal/cli/finalizers", "operator/escape"},
		external: []string{"golang.org/x/sync", "k8s.io/api", "k8s.io/apimachinery", "k8s.io/client-go"},
	},
	"internal/cli/governed": {
		internal: []string{"crds/v1alpha1", "operator/survey", "policies"},
		external: []string{"k8s.io/apimachinery"},
	},
	"internal/cli/ownership": {
		internal: []string{"internal/cli/printer", "operator/candidate", "operator/decide", "operator/graph", "operator/record", "operator/survey"},
		external: []string{"k8s.io/apimachinery", "k8s.io/utils"},
	},
	"internal/cli/picture": {
		pure: true, internal: []string{"internal/cli/ownership", "internal/cli/printer", "operator/decide", "operator/escape"},
		external: []string{"k8s.io/apimachinery"},
	},
	"internal/cli/pause": {
		internal: []string{
			"crds/v1alpha1", "internal/cli/arguments", "internal/cli/exit", "internal/cli/finalizers", "internal/cli/kubectl", "internal/cli/printer",
			"operator/budgetstore", "operator/livelist", "operator/pausestore",
		},
		external: []string{"github.com/spf13/cobra", "k8s.io/apimachinery", "sigs.k8s.io/controller-runtime"},
	},
	"internal/cli/preview": {
		internal: []string{
			"crds/v1alpha1", "internal/cli/arguments", "internal/cli/exit", "internal/cli/finalizers", "internal/cli/input", "internal/cli/kubectl", "internal/cli/loader",
			"internal/cli/modes", "internal/cli/permissions", "internal/cli/printer", "internal/cli/replicas", "internal/cli/retention", "operator/budgetstore", "operator/companion", "operator/graph", "operator/keystore", "operator/preview", "operator/record",
			"operator/statekey", "operator/survey", "policies/source",
		},
		external: []string{"github.com/spf13/cobra", "k8s.io/api", "k8s.io/apimachinery", "k8s.io/client-go"},
	},
	"internal/cli/retention": {
		internal: []string{
			"crds/resources", "crds/v1alpha1", "internal/cli/arguments", "internal/cli/exit", "internal/cli/input", "internal/cli/kubectl", "internal/cli/printer", "internal/cli/replicas",
			"hostabi", "operator/bulkread", "operator/evaluate", "operator/graph", "operator/intents", "operator/livelist", "operator/modulecall", "operator/policyset", "operator/preview",
			"operator/record", "operator/retainer/preview", "operator/retention", "operator/statekey", "operator/survey", "policies", "policies/builtin",
		},
		external: []string{
			"github.com/go-logr/logr", "github.com/spf13/cobra", "k8s.io/api", "k8s.io/apimachinery", "k8s.io/client-go", "sigs.k8s.io/controller-runtime",
		},
	},
	"internal/cli/printer": {
		internal: []string{"operator/escape"},
		external: []string{"github.com/spf13/cobra", "k8s.io/apimachinery", "k8s.io/cli-runtime", "sigs.k8s.io/yaml"},
	},
	"internal/cli/printer/printertest": {
		internal: []string{"internal/cli/exit", "internal/cli/printer"},
	},
	"internal/cli/program": {
		internal: []string{"internal/cli/arguments", "internal/cli/exit", "internal/cli/kubectl", "internal/cli/printer"},
		external: []string{"github.com/spf13/cobra"},
	},
	"internal/cli/rbac": {
		internal: []string{
			"internal/cli/arguments", "internal/cli/exit", "internal/cli/finalizers", "internal/cli/input", "internal/cli/kubectl", "internal/cli/modes",
			"internal/cli/permissions", "internal/cli/printer", "internal/cli/replicas",
		},
		external: []string{"github.com/spf13/cobra", "k8s.io/apimachinery", "k8s.io/client-go"},
	},
	"internal/cli/records": {
		internal: []string{
			"internal/cli/entries", "internal/cli/exit", "internal/cli/history", "internal/cli/kubectl", "internal/cli/printer", "internal/cli/replicas",
			"operator/record",
		},
		external: []string{"github.com/spf13/cobra", "github.com/spf13/pflag", "k8s.io/apimachinery", "k8s.io/client-go"},
	},
	"internal/cli/reference": {
		external: []string{"github.com/spf13/cobra", "github.com/spf13/pflag"},
	},
	"internal/cli/release": {
		internal: []string{
			"crds/v1alpha1", "internal/cli/exit", "internal/cli/finalizers", "internal/cli/kubectl", "internal/cli/printer", "operator/graph", "operator/release",
			"policies",
		},
		external: []string{"github.com/spf13/cobra", "k8s.io/apimachinery", "k8s.io/client-go", "sigs.k8s.io/controller-runtime"},
	},
	"internal/cli/replay": {
		internal: []string{
			"hostabi", "internal/cli/entries", "internal/cli/exit", "internal/cli/history", "internal/cli/input", "internal/cli/kubectl", "internal/cli/loader",
			"internal/cli/printer", "internal/cli/records", "internal/cli/replicas", "operator/backtest", "operator/catalog", "operator/escape", "operator/preview",
			"operator/record", "operator/survey", "policies", "policies/source", "policies/wasm/sandbox",
		},
		external: []string{"github.com/spf13/cobra", "k8s.io/apimachinery", "k8s.io/client-go"},
	},
	"internal/cli/replicas": {
		internal: []string{"internal/cli/exit", "operator/archive", "operator/archive/serve", "operator/debug", "operator/record"},
		external: []string{"github.com/spf13/pflag", "golang.org/x/sync", "k8s.io/api", "k8s.io/apimachinery", "k8s.io/client-go", "k8s.io/utils"},
	},
	"internal/cli/node": {
		internal: []string{"internal/cli/arguments", "internal/cli/exit", "internal/cli/kubectl", "internal/cli/serving", "operator/debug", "operator/noderun"},
		external: []string{"github.com/spf13/cobra", "github.com/spf13/pflag", "k8s.io/client-go", "k8s.io/klog", "sigs.k8s.io/controller-runtime"},
	},
	"internal/cli/serving": {
		external: []string{"github.com/go-logr/logr", "go.uber.org/zap", "k8s.io/client-go", "sigs.k8s.io/controller-runtime"},
	},
	"internal/cli/run": {
		internal: []string{
			"crds/v1alpha1", "internal/cli/arguments", "internal/cli/exit", "internal/cli/kubectl", "internal/cli/modes", "internal/cli/serving", "operator/archive", "operator/archive/open",
			"operator/archive/serve", "operator/certs", "operator/debug", "operator/intents", "operator/run", "operator/companion", "operator/latest", "operator/modulestore", "operator/modulestore/fetch", "operator/record", "operator/webhook", "policies/builtin", "policies/source/signature", "policies/worker",
		},
		external: []string{
			"github.com/go-logr/logr", "github.com/prometheus/client_golang", "github.com/spf13/cobra", "github.com/spf13/pflag", "k8s.io/api",
			"k8s.io/apimachinery", "k8s.io/client-go", "k8s.io/klog", "k8s.io/utils", "sigs.k8s.io/controller-runtime", "sigs.k8s.io/yaml",
		},
	},
	"internal/cli/restore": {
		internal: []string{
			"internal/cli/arguments", "internal/cli/entries", "internal/cli/exit", "internal/cli/finalizers", "internal/cli/kubectl", "internal/cli/printer",
			"operator/archive", "operator/catalog", "operator/restore",
		},
		external: []string{
			"filippo.io/age", "github.com/spf13/cobra", "github.com/spf13/pflag", "golang.org/x/sync", "k8s.io/apimachinery", "k8s.io/cli-runtime", "k8s.io/client-go",
		},
	},
	"internal/cli/sandbox": {
		internal: []string{"internal/cli/exit", "policies/worker/serve"},
		external: []string{"github.com/spf13/cobra"},
	},
	"internal/cli/stuck": {
		internal: []string{
			"internal/cli/arguments", "internal/cli/exit", "internal/cli/finalizers", "internal/cli/kubectl", "internal/cli/printer", "operator/graph",
			"operator/record", "operator/survey",
		},
		external: []string{"github.com/spf13/cobra", "golang.org/x/sync", "k8s.io/api", "k8s.io/apimachinery", "k8s.io/client-go", "sigs.k8s.io/controller-runtime"},
	},
	"internal/cli/test": {
		internal: []string{
			"hostabi", "internal/cli/exit", "internal/cli/kubectl", "internal/cli/loader", "internal/cli/printer", "internal/cli/records", "operator/record", "operator/decide",
			"operator/escape", "operator/graph", "operator/objectstate", "policies", "policies/builtin", "policies/policytest", "policies/rego", "policies/wasm/sandbox",
		},
		external: []string{"github.com/spf13/cobra", "github.com/spf13/pflag", "k8s.io/apimachinery", "sigs.k8s.io/yaml"},
	},
	"internal/cli/ui": {
		internal: []string{
			"crds/v1alpha1", "internal/cli/archive", "internal/cli/arguments", "internal/cli/entries", "internal/cli/exit", "internal/cli/explain", "internal/cli/finalizers",
			"internal/cli/governed", "internal/cli/history", "internal/cli/input", "internal/cli/kubectl", "internal/cli/ownership", "internal/cli/pause", "internal/cli/preview", "internal/cli/printer",
			"internal/cli/replay", "internal/cli/replicas", "internal/cli/restore", "internal/cli/stuck", "internal/cli/test", "internal/ui/guard", "internal/ui/login",
			"internal/ui/page", "internal/ui/server", "operator/archive", "operator/cascadelog", "operator/debug", "operator/graph", "operator/preview", "operator/record",
			"operator/survey",
		},
		external: []string{"github.com/spf13/cobra", "k8s.io/api", "k8s.io/apimachinery", "k8s.io/client-go", "sigs.k8s.io/controller-runtime", "sigs.k8s.io/yaml"},
	},
	"internal/ui/guard": {},
	"internal/ui/login": {internal: []string{"internal/ui/page"}, external: []string{"golang.org/x/time"}},
	"internal/ui/page": {
		pure: true, internal: []string{
			"crds/v1alpha1", "hostabi", "internal/cli/explain", "internal/cli/governed", "internal/cli/ownership", "internal/cli/picture", "internal/cli/printer", "internal/cli/replicas", "internal/cli/stuck",
			"operator/archive", "operator/cascadelog", "operator/completion", "operator/debug", "operator/decide", "operator/escape", "operator/record",
		},
		external: []string{"k8s.io/apimachinery", "k8s.io/utils"},
	},
	"internal/ui/server": {
		internal: []string{"internal/cli/explain", "internal/cli/governed", "internal/cli/ownership", "internal/cli/replicas", "internal/cli/stuck", "internal/ui/page", "operator/archive", "operator/record"},
		external: []string{"k8s.io/apimachinery"},
	},
}
