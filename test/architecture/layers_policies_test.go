package architecture

// policyLayers are the rows of what evaluates policies, without a cluster.
var policyLayers = map[string]layer{
	"hostabi":          {},
	"policies":         {internal: []string{"hostabi"}, external: []string{"k8s.io/apimachinery"}},
	"policies/builtin": {internal: []string{"hostabi", "policies"}},
	"policies/fixed":   {internal: []string{"hostabi", "policies"}},
	"policies/policytest": {
		internal: []string{"hostabi", "policies"},
		external: []string{"github.com/google/go-cmp", "sigs.k8s.io/yaml"},
	},

	"policies/wasm/fuel":   {pure: true},
	"policies/wasm/asm":    {},
	"policies/wasm/sealed": {},
	"policies/wasm/sandbox": {
		internal: []string{"policies/wasm/fuel", "policies/wasm/sealed"},
		external: []string{"github.com/tetratelabs/wazero", "golang.org/x/sys"},
	},
	"policies/settings": { // what a module may carry, for all engines
		pure: true, internal: []string{"hostabi"}, external: []string{"github.com/santhosh-tekuri/jsonschema", "golang.org/x/text"},
	},
	"policies/wasm": {
		internal: []string{"hostabi", "policies", "policies/settings", "policies/wasm/fuel", "policies/wasm/sandbox"},
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
		internal: []string{"hostabi", "policies", "policies/settings", "policies/wasm/fuel", "policies/wasm/sandbox", "policies/wasm/sealed", "sdk/rego"},
		external: []string{"github.com/open-policy-agent/opa/v1", "github.com/tetratelabs/wazero/api"},
	},
	"sdk/rego":          {},
	"sdk/rust":          {},
	"sdk/rust/rusttest": {},
	"policies/library":  {},

	"policies/source": {
		internal: []string{"policies/source/egress", "policies/source/oci", "policies/source/signature"},
		external: []string{"github.com/google/go-containerregistry/pkg/v1"},
	},
	"policies/source/signature/signaturetest": { // used by tests only
		internal: []string{"policies/source/signature"},
		external: []string{"github.com/sigstore/protobuf-specs", "github.com/sigstore/sigstore", "github.com/sigstore/sigstore-go"},
	},
	"policies/source/signature": { // nothing of registries and clusters
		pure: true,
		external: []string{
			"github.com/secure-systems-lab/go-securesystemslib/dsse", "github.com/sigstore/protobuf-specs", "github.com/sigstore/sigstore", "github.com/sigstore/sigstore-go",
		},
	},
	"policies/source/egress": {},
	"policies/source/oci":    {external: []string{"github.com/google/go-containerregistry/pkg/v1"}},
}
