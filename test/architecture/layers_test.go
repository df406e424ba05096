package architecture

// layers is the architecture: one row for each package, by folder. Add the row of a
// package before its first file.
var layers = map[string]layer{
	"operator/statekey": {pure: true, external: []string{"k8s.io/apimachinery"}},
	"operator/keystore": {
		internal: []string{"operator/statekey"},
		external: []string{"github.com/go-logr/logr", "k8s.io/api", "k8s.io/apimachinery", "k8s.io/client-go"},
	},
	"operator/writelimit": {external: []string{"golang.org/x/time/rate"}},

	"operator/objectstate":                 {pure: true, internal: []string{"hostabi", "operator/statekey"}, external: []string{"k8s.io/apimachinery"}},
	"operator/archive":                     {external: []string{"filippo.io/age", "github.com/klauspost/compress/zstd", "golang.org/x/crypto/ssh", "k8s.io/apimachinery"}},
	"operator/archive/groupcommit":         {external: []string{"golang.org/x/sync/semaphore"}},
	"operator/archive/codec":               {internal: []string{"operator/archive"}, external: []string{"k8s.io/apimachinery"}},
	"operator/archive/filestore/pagecheck": {},
	"operator/archive/filestore": {
		internal: []string{"operator/archive", "operator/archive/codec", "operator/archive/filestore/pagecheck", "operator/archive/groupcommit"},
		external: []string{"go.etcd.io/bbolt", "k8s.io/apimachinery"},
	},
	"operator/archive/segment": {internal: []string{"operator/archive", "operator/archive/codec"}},
	"operator/archive/s3store": {
		internal: []string{"operator/archive", "operator/archive/codec", "operator/archive/groupcommit", "operator/archive/segment"},
		external: []string{"github.com/aws/aws-sdk-go-v2", "github.com/aws/smithy-go", "golang.org/x/sync/errgroup", "k8s.io/apimachinery"},
	},
	"operator/archive/open": {
		internal: []string{"operator/archive", "operator/archive/filestore", "operator/archive/s3store"},
	},
	"operator/archive/archivetest": {
		internal: []string{"operator/archive", "operator/archive/codec"},
		external: []string{"github.com/google/go-cmp/cmp", "k8s.io/apimachinery"},
	},
	"operator/restore":   {pure: true, internal: []string{"crds/v1alpha1", "operator/archive"}, external: []string{"k8s.io/apimachinery"}},
	"operator/selection": {pure: true, external: []string{"k8s.io/apimachinery"}},
	"operator/selectors": {internal: []string{"hostabi", "operator/selection", "policies"}, external: []string{"k8s.io/apimachinery"}},
	"operator/lastseen":  {external: []string{"k8s.io/apimachinery"}},
	"operator/bulkread":  {internal: []string{"operator/catalog"}, external: []string{"k8s.io/apimachinery", "k8s.io/client-go"}},
	"operator/follow":    {internal: []string{"operator/bulkread", "operator/catalog"}, external: []string{"k8s.io/apimachinery", "k8s.io/client-go"}},
	"operator/relabel": {
		internal: []string{"operator/catalog", "operator/gate", "operator/graph", "operator/selection", "operator/selectors"},
		external: []string{"github.com/go-logr/logr", "k8s.io/apimachinery", "k8s.io/client-go"},
	},
	"operator/graph":   {pure: true, internal: []string{"operator/objectstate", "operator/selection"}, external: []string{"k8s.io/apimachinery", "k8s.io/utils"}},
	"operator/catalog": {pure: true, external: []string{"k8s.io/apimachinery"}},
	"operator/decide": {
		pure:     true,
		internal: []string{"hostabi", "operator/graph", "operator/objectstate"},
		external: []string{"k8s.io/apimachinery"},
	},
	"operator/order":      {internal: []string{"hostabi", "operator/graph"}, external: []string{"k8s.io/apimachinery"}},
	"operator/observe":    {internal: []string{"operator/graph"}, external: []string{"k8s.io/apimachinery"}},
	"operator/graphstore": {internal: []string{"operator/graph", "operator/selection"}, external: []string{"k8s.io/apimachinery"}},
	"operator/fairqueue":  {internal: []string{"operator/graph"}, external: []string{"k8s.io/client-go"}},
	"operator/collector": { // nothing that only companion mode needs, and nothing of status
		internal: []string{
			"hostabi", "operator/act", "operator/bulkread", "operator/catalog", "operator/decide", "operator/evaluate", "operator/gate", "operator/gather",
			"operator/graph", "operator/graphstore", "operator/lastseen", "operator/modulecall", "operator/objectstate", "operator/observe", "operator/order", "operator/record", "operator/selectors", "operator/statekey", "operator/writelimit",
			"operator/writer", "policies",
		},
		external: []string{"k8s.io/apimachinery", "k8s.io/client-go", "sigs.k8s.io/controller-runtime/pkg/reconcile"},
	},
	"operator/simulate": {
		internal: []string{
			"operator/collector", "operator/gate", "operator/gather", "operator/graph", "operator/graphstore", "operator/modulecall", "operator/policystatus",
			"operator/record", "operator/recorder", "operator/statekey", "policies",
		},
		external: []string{"github.com/go-logr/logr", "k8s.io/client-go"},
	},
	"operator/evaluate": {
		internal: []string{"hostabi", "policies", "operator/bulkread", "operator/catalog", "operator/decide", "operator/graph", "operator/intents", "operator/modulecall", "operator/objectstate", "operator/selectors", "operator/statekey"},
		external: []string{"k8s.io/apimachinery"},
	},
	"operator/impersonate": {internal: []string{"policies"}, external: []string{"k8s.io/client-go"}},
	"operator/modulecall": { // for policies and finalizers; decides nothing
		internal: []string{"hostabi", "policies", "operator/graph", "operator/impersonate", "operator/intents"},
		external: []string{"k8s.io/apimachinery", "k8s.io/client-go"},
	},
	"operator/intents": {
		internal: []string{"hostabi", "policies", "policies/source/egress", "operator/catalog", "operator/impersonate", "operator/writelimit"},
		external: []string{
			"github.com/aws/aws-sdk-go-v2/aws", "github.com/go-logr/logr", "golang.org/x/net/http/httpguts", "golang.org/x/net/idna",
			"k8s.io/api", "k8s.io/apimachinery", "k8s.io/client-go", "k8s.io/klog/v2",
		},
	},
	"operator/finalizers": {
		internal: []string{
			"hostabi", "policies", "operator/act", "operator/bulkread", "operator/catalog", "operator/gate", "operator/graph", "operator/intents", "operator/lastseen",
			"operator/modulecall", "operator/objectstate", "operator/statekey", "operator/writelimit", "operator/writer",
		},
		external: []string{"github.com/go-logr/logr", "k8s.io/api", "k8s.io/apimachinery", "k8s.io/client-go"},
	},
	"operator/latest": {},
	"operator/modulestore": {
		internal: []string{"hostabi", "policies", "policies/source", "crds/v1alpha1", "operator/latest"},
		external: []string{"k8s.io/apimachinery"},
	},
	"operator/modulestore/workers": {
		internal: []string{"hostabi", "policies", "policies/wasm/sandbox", "policies/worker", "crds/v1alpha1", "operator/modulestore"},
	},
	"operator/modulestore/fetch": {
		internal: []string{"crds/v1alpha1", "operator/modulestore", "policies/source", "policies/source/egress", "policies/source/signature"},
		external: []string{"github.com/go-logr/logr", "k8s.io/api", "k8s.io/apimachinery", "sigs.k8s.io/controller-runtime"},
	},
	"operator/modulestore/loader": {
		internal: []string{
			"operator/graph", "operator/modulestore", "operator/modulestore/fetch", "operator/modulestore/workers",
			"policies/source", "policies/source/egress", "policies/worker",
		},
		external: []string{"github.com/go-logr/logr", "k8s.io/apimachinery", "sigs.k8s.io/controller-runtime"},
	},
	"operator/budget":  {},
	"operator/cascade": {internal: []string{"operator/graph"}, external: []string{"k8s.io/apimachinery"}},
	"operator/livesource": {
		internal: []string{"crds/v1alpha1", "operator/graph", "operator/latest"},
		external: []string{"github.com/go-logr/logr", "k8s.io/apimachinery"},
	},
	"operator/livelist": {internal: []string{"crds/v1alpha1"}, external: []string{"k8s.io/apimachinery", "sigs.k8s.io/controller-runtime"}},
	"operator/policyset": { // nothing of leaders, holds, webhooks, events and status
		internal: []string{
			"crds/resources", "crds/v1alpha1", "hostabi", "operator/candidate", "operator/catalog", "operator/graph", "operator/latest", "operator/livelist", "operator/modulestore",
			"operator/references", "operator/retain", "operator/retention", "operator/selectors", "policies", "policies/fixed", "policies/source", "policies/source/egress",
		},
		external: []string{
			"github.com/go-logr/logr", "github.com/google/cel-go", "k8s.io/apimachinery", "k8s.io/apiserver", "k8s.io/client-go", "sigs.k8s.io/controller-runtime",
		},
	},
	"operator/policyset/policysettest": {anything: true},
	"operator/gate":                    {internal: []string{"operator/latest"}},
	"operator/webhook":                 {internal: []string{"operator/latest"}, external: []string{"github.com/go-logr/logr", "k8s.io/api", "k8s.io/apimachinery", "k8s.io/utils"}},
	"operator/webhook/webhooktest":     {external: []string{"k8s.io/api"}},
	"operator/admission": {
		internal: []string{"crds/v1alpha1", "operator/gate", "operator/graph", "operator/latest", "operator/policyset", "operator/webhook", "policies"},
		external: []string{"github.com/go-logr/logr", "k8s.io/api", "k8s.io/apimachinery", "k8s.io/utils", "sigs.k8s.io/controller-runtime"},
	},
	"operator/companion": {
		internal: []string{"crds/v1alpha1", "hostabi", "operator/admission", "operator/gate", "operator/latest", "operator/policyset", "operator/webhook"},
		external: []string{"github.com/go-logr/logr", "k8s.io/api", "k8s.io/apimachinery", "k8s.io/utils", "sigs.k8s.io/controller-runtime"},
	},
	"operator/protect": {
		internal: []string{
			"crds/v1alpha1", "hostabi", "operator/admission", "operator/gate", "operator/latest", "operator/policyset", "operator/webhook", "policies",
		},
		external: []string{"github.com/go-logr/logr", "k8s.io/api", "k8s.io/apimachinery", "k8s.io/utils", "sigs.k8s.io/controller-runtime"},
	},
	"operator/retain":    {},
	"operator/retention": {internal: []string{"operator/candidate", "operator/retain"}, external: []string{"k8s.io/apimachinery"}},
	"operator/candidate": {internal: []string{"operator/retain"}, external: []string{"k8s.io/api", "k8s.io/apimachinery"}},
	"operator/retainer/preview": {
		internal: []string{
			"operator/candidate", "operator/catalog", "operator/follow", "operator/policyset", "operator/references", "operator/retain", "operator/retention",
		},
		external: []string{"k8s.io/apimachinery"},
	},
	"operator/imagereview": {
		internal: []string{
			"crds/v1alpha1", "hostabi", "operator/catalog", "operator/evaluate", "operator/follow", "operator/graph", "operator/livelist", "operator/livesource", "operator/modulecall",
			"operator/noderetention", "policies",
		},
		external: []string{"github.com/go-logr/logr", "k8s.io/api", "k8s.io/apimachinery", "sigs.k8s.io/controller-runtime"},
	},
	"operator/retainer": {
		internal: []string{
			"hostabi", "operator/act", "operator/candidate", "operator/catalog", "operator/decide", "operator/evaluate", "operator/follow", "operator/gate", "operator/graph", "operator/latest",
			"operator/modulecall", "operator/policyset", "operator/references", "operator/retain", "operator/retention", "operator/writer", "policies",
		},
		external: []string{"github.com/go-logr/logr", "k8s.io/apimachinery", "k8s.io/client-go"},
	},
	"operator/references": {external: []string{"k8s.io/api", "k8s.io/apimachinery"}},
	"operator/slots":      {},
	"operator/graceperiod": {
		internal: []string{
			"operator/act", "operator/admission", "operator/gate", "operator/graph", "operator/objectstate", "operator/policyset", "operator/slots", "operator/statekey",
			"operator/webhook", "operator/writer", "policies",
		},
		external: []string{"github.com/go-logr/logr", "k8s.io/api", "k8s.io/apimachinery", "k8s.io/client-go", "k8s.io/utils"},
	},
	"operator/protect/reviewer": {
		internal: []string{
			"hostabi", "operator/catalog", "operator/evaluate", "operator/graph", "operator/protect", "operator/slots", "operator/webhook", "policies",
		},
		external: []string{"k8s.io/api", "k8s.io/apimachinery"},
	},
	"operator/companion/reviewer": {
		internal: []string{
			"hostabi", "operator/catalog", "operator/collector", "operator/companion", "operator/decide", "operator/evaluate", "operator/gate",
			"operator/graph", "operator/graphstore", "operator/modulecall", "operator/order", "operator/pause", "operator/record", "operator/slots", "operator/webhook", "policies",
		},
		external: []string{"github.com/go-logr/logr", "k8s.io/api", "k8s.io/apimachinery"},
	},
	"operator/policystatus": {
		internal: []string{
			"crds/v1alpha1", "hostabi", "operator/admission", "operator/archivestore", "operator/companion", "operator/gate", "operator/graceperiod", "operator/latest", "operator/policyset",
			"operator/protect", "operator/retainer", "operator/retention", "policies", "policies/worker",
		},
		external: []string{"github.com/go-logr/logr", "k8s.io/api", "k8s.io/apimachinery", "k8s.io/client-go", "sigs.k8s.io/controller-runtime"},
	},
	"operator/inuse": {
		internal: []string{"crds/v1alpha1", "operator/admission", "operator/gate", "operator/latest", "operator/policyset"},
		external: []string{"github.com/go-logr/logr", "k8s.io/apimachinery", "sigs.k8s.io/controller-runtime"},
	},
	"operator/watch": {
		internal: []string{"operator/catalog", "operator/graph", "operator/objectstate", "operator/selectors"},
		external: []string{
			"github.com/go-logr/logr", "golang.org/x/sync",
			"k8s.io/apimachinery", "k8s.io/client-go", "k8s.io/kube-aggregator", "k8s.io/utils",
		},
	},
	"operator/certs": {
		internal: []string{"operator/latest", "operator/webhook"},
		external: []string{
			"github.com/go-logr/logr", "github.com/open-policy-agent/cert-controller",
			"k8s.io/api", "k8s.io/apimachinery", "k8s.io/client-go", "sigs.k8s.io/controller-runtime",
		},
	},
	"operator/gather": {
		internal: []string{"operator/catalog", "operator/decide", "operator/graph", "operator/order"},
		external: []string{"golang.org/x/sync", "k8s.io/apimachinery", "k8s.io/client-go"},
	},
	"operator/survey": {
		internal: []string{"operator/catalog", "operator/decide", "operator/gather", "operator/graph", "operator/watch"},
		external: []string{"golang.org/x/sync", "k8s.io/apimachinery", "k8s.io/client-go", "k8s.io/kube-aggregator"},
	},
	"operator/preview": {
		internal: []string{
			"crds/v1alpha1", "hostabi", "operator/catalog", "operator/decide", "operator/gather", "operator/graph", "operator/intents",
			"operator/modulecall", "operator/modulestore/loader", "operator/policyset", "operator/record", "operator/simulate", "operator/statekey", "operator/survey", "policies", "policies/builtin", "policies/source",
		},
		external: []string{
			"github.com/go-logr/logr", "k8s.io/apimachinery", "k8s.io/client-go", "k8s.io/utils", "sigs.k8s.io/controller-runtime",
		},
	},
	"operator/escape":   {pure: true},
	"operator/networks": {external: []string{"k8s.io/api", "k8s.io/apimachinery", "k8s.io/client-go"}},
	"operator/act": {
		internal: []string{"operator/catalog", "operator/decide", "operator/graph", "operator/objectstate", "operator/statekey"},
		external: []string{"k8s.io/apimachinery", "k8s.io/client-go", "k8s.io/utils"},
	},
	"operator/writer": {internal: []string{"operator/act", "operator/gate", "operator/graph"}, external: []string{"k8s.io/apimachinery"}}, // every write to a user's object passes through it
	"operator/pause":  {internal: []string{"operator/writer"}, external: []string{"k8s.io/apimachinery"}},
	"operator/pausestore": {
		internal: []string{"crds/v1alpha1", "operator/livelist", "operator/livesource", "operator/pause"},
		external: []string{"github.com/go-logr/logr", "k8s.io/apimachinery", "sigs.k8s.io/controller-runtime"},
	},
	"operator/budgetstore": {internal: []string{"crds/v1alpha1", "hostabi", "operator/budget", "operator/livelist", "policies"}, external: []string{"k8s.io/apimachinery", "sigs.k8s.io/controller-runtime"}},
	"operator/budgeter": {
		internal: []string{
			"crds/v1alpha1", "operator/act", "operator/budget", "operator/budgetstore", "operator/bulkread", "operator/catalog", "operator/graph",
			"operator/livelist", "operator/livesource", "operator/modulecall", "operator/writer", "policies",
		},
		external: []string{"github.com/go-logr/logr", "golang.org/x/sync", "k8s.io/api", "k8s.io/apimachinery", "k8s.io/client-go", "sigs.k8s.io/controller-runtime"},
	},
	"operator/completion": {internal: []string{"operator/graph"}, external: []string{"k8s.io/apimachinery"}},
	"operator/cascadelog": {
		internal: []string{"operator/completion", "operator/decide", "operator/graph", "operator/record"},
		external: []string{"github.com/go-logr/logr", "k8s.io/api", "k8s.io/apimachinery", "sigs.k8s.io/controller-runtime"},
	},
	"operator/record": {
		internal: []string{"hostabi", "policies", "operator/decide", "operator/graph"},
		external: []string{"k8s.io/apimachinery"},
	},
	"operator/archivestore": {internal: []string{"operator/archive", "operator/latest"}, external: []string{"github.com/go-logr/logr", "k8s.io/apimachinery"}},
	"operator/archiver": {
		internal: []string{
			"operator/act", "operator/archive", "operator/bulkread", "operator/catalog", "operator/graph", "operator/modulecall", "operator/policyset",
			"operator/writer", "policies",
		},
		external: []string{"filippo.io/age", "k8s.io/apimachinery"},
	},
	"operator/recordlog": {
		internal: []string{"operator/archive", "operator/record"},
		external: []string{"github.com/go-logr/logr", "k8s.io/apimachinery"},
	},
	"operator/backtest": {
		internal: []string{
			"hostabi", "operator/catalog", "operator/decide", "operator/evaluate", "operator/graph", "operator/intents", "operator/modulecall", "operator/record",
			"policies", "policies/builtin",
		},
		external: []string{"k8s.io/apimachinery"},
	},
	"operator/recorder": {
		internal: []string{
			"hostabi", "operator/act", "operator/collector", "operator/decide", "operator/evaluate", "operator/finalizers", "operator/graph",
			"operator/imagereview", "operator/modulecall", "operator/policystatus", "operator/record", "operator/retainer", "operator/writelimit",
		},
		external: []string{"github.com/go-logr/logr", "github.com/prometheus", "k8s.io/api", "k8s.io/apimachinery", "k8s.io/client-go"},
	},
	"operator/release": {
		internal: []string{"crds/v1alpha1", "operator/graph", "operator/objectstate"},
		external: []string{"k8s.io/apimachinery", "k8s.io/client-go", "k8s.io/utils"},
	},
	"operator/canary": {
		internal: []string{"operator/companion", "operator/gate"},
		external: []string{"github.com/go-logr/logr", "k8s.io/api", "k8s.io/apimachinery", "k8s.io/client-go", "k8s.io/utils"},
	},
	"operator/archive/memory": {internal: []string{"operator/archive"}, external: []string{"filippo.io/age", "k8s.io/apimachinery"}},
	"operator/archive/serve": {
		internal: []string{"operator/archive", "operator/debug", "operator/record"},
		external: []string{"k8s.io/apimachinery"},
	},
	"operator/debug": {
		internal: []string{"hostabi", "operator/cascadelog", "operator/completion", "operator/escape", "operator/graph", "operator/record"},
		external: []string{"github.com/go-logr/logr", "k8s.io/apimachinery", "k8s.io/apiserver", "k8s.io/client-go"},
	},
	"operator/validation": {
		internal: []string{
			"crds/resources", "crds/v1alpha1", "operator/admission", "operator/gate", "operator/modulestore", "operator/policyset", "operator/slots", "operator/webhook", "policies/source",
		},
		external: []string{"github.com/go-logr/logr", "k8s.io/api", "k8s.io/apimachinery", "k8s.io/utils", "sigs.k8s.io/controller-runtime"},
	},
	"operator/run": {
		internal: []string{
			"crds/v1alpha1", "operator/act", "operator/admission", "operator/archive", "operator/archiver", "operator/archivestore", "operator/budgeter", "operator/bulkread", "operator/canary", "operator/cascadelog", "operator/catalog", "operator/collector",
			"operator/companion", "operator/companion/reviewer", "operator/completion", "operator/debug", "operator/escape", "operator/evaluate", "operator/fairqueue", "operator/finalizers",
			"operator/gate", "operator/gather", "operator/graceperiod", "operator/graph", "operator/graphstore", "operator/imagereview", "operator/intents", "operator/inuse", "operator/keystore",
			"operator/modulecall", "operator/modulestore", "operator/modulestore/fetch", "operator/modulestore/loader", "operator/networks", "operator/pause", "operator/pausestore", "operator/policyset", "operator/policystatus", "operator/protect", "operator/protect/reviewer", "operator/record", "operator/recordlog",
			"operator/recorder", "operator/relabel", "operator/retainer", "operator/validation", "operator/watch", "operator/webhook", "operator/writelimit", "operator/writer",
			"policies", "policies/source/egress", "policies/worker",
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

	"crds/resources": {internal: []string{"crds/v1alpha1"}, external: []string{"k8s.io/apimachinery"}},

	"crds/admit": {
		internal: []string{"crds"},
		external: []string{"k8s.io/apiextensions-apiserver/pkg", "k8s.io/apimachinery", "k8s.io/apiserver"},
	},

	"cmd/gleaner":     {anything: true},
	"cmd/gleaner-dev": {anything: true},

	"sdk/go":                    {internal: []string{"hostabi", "sdk/go/internal/guest"}},
	"sdk/go/finalize":           {internal: []string{"hostabi", "sdk/go/internal/guest", "sdk/go/internal/jsonread"}},
	"sdk/go/gleanertest":        {internal: []string{"hostabi", "sdk/go", "sdk/go/internal/guest"}},
	"sdk/go/internal/guest":     {internal: []string{"hostabi", "sdk/go/internal/jsonread"}},
	"sdk/go/internal/jsonread":  {},
	"sdk/go/examples/keep-data": {internal: []string{"sdk/go"}},

	"examples/bucket-finalizer":     {internal: []string{"sdk/go", "sdk/go/finalize"}},
	"examples/drain-before-delete":  {internal: []string{"sdk/go", "sdk/go/finalize"}},
	"examples/backup-before-delete": {internal: []string{"sdk/go", "sdk/go/finalize"}},
	"examples/dns-finalizer/server": {},
}
