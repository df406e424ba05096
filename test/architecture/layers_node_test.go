package architecture

// nodeLayers are the rows of what runs on nodes.
var nodeLayers = map[string]layer{
	"operator/noderetention": {pure: true, internal: []string{"operator/retain"}, external: []string{"github.com/distribution/reference"}},
	"operator/cri": {
		internal: []string{"operator/noderetention"},
		external: []string{"google.golang.org/grpc", "k8s.io/cri-api", "k8s.io/cri-client"},
	},
	"operator/nodeagent": {internal: []string{"operator/noderetention", "operator/retain"}, external: []string{"github.com/go-logr/logr"}},
	"operator/nodestatus": {
		internal: []string{"crds/v1alpha1", "operator/latest", "operator/nodeagent", "operator/noderetention", "operator/retain"},
		external: []string{"github.com/go-logr/logr", "k8s.io/api", "k8s.io/apimachinery", "k8s.io/client-go", "sigs.k8s.io/controller-runtime"},
	},
	"operator/noderun": {
		internal: []string{"crds/v1alpha1", "operator/cri", "operator/nodeagent", "operator/noderetention", "operator/nodestatus", "operator/retain"},
		external: []string{
			"github.com/go-logr/logr", "github.com/prometheus", "golang.org/x/sys", "k8s.io/api", "k8s.io/apimachinery", "k8s.io/client-go",
			"sigs.k8s.io/controller-runtime",
		},
	},
}
