package replicas

import (
	"os"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"

	"github.com/gleaner-dev/gleaner/internal/cli/exit"
)

// Flags are the flags of commands that query the operator's debug endpoints.
type Flags struct {
	namespace, endpoint, ca, tokenOf string

	flags *pflag.FlagSet // to which these were added
}

// EndpointVariable is the environment variable for --endpoint.
const EndpointVariable = "GLEANER_ENDPOINT"

// resolveEndpoint returns the endpoint and its origin: the flag, or else the environment variable, unless
// the flags name another place.
func (o *Flags) resolveEndpoint() (endpoint, from string) {
	if o.flags != nil && (o.flags.Changed("endpoint") || o.flags.Changed("operator-namespace")) {
		return o.endpoint, "--endpoint"
	}
	if value := os.Getenv(EndpointVariable); value != "" {
		return value, "$" + EndpointVariable
	}
	return o.endpoint, "--endpoint"
}

// AddTo adds the flags.
func (o *Flags) AddTo(flags *pflag.FlagSet) {
	o.flags = flags
	flags.StringVar(&o.namespace, "operator-namespace", "", "the operator's `namespace`; by default its pods are searched for in all namespaces")
	flags.StringVar(&o.endpoint, "endpoint", "", "`URL` of the operator's metrics address, used instead of a port-forward to its pods. Default $"+EndpointVariable+", unless --operator-namespace is given")
	flags.StringVar(&o.ca, "endpoint-ca", "", "`file` with the CA certificate of the endpoint; on loopback, the endpoint's certificate is not verified by default")
	if token := flags.Lookup("token"); token != nil {
		token.Hidden = false // the operator authenticates clients by it
	}
	flags.StringVar(&o.tokenOf, "token-of", "", "service account `NAMESPACE/NAME` to authenticate to the operator as, if the kubeconfig has no token")
}

// Validate returns an error if a flag is invalid.
func (o *Flags) Validate() error {
	err := o.Options(nil).Validate()
	if _, from := o.resolveEndpoint(); err != nil && from != "--endpoint" {
		return exit.Usagef("%s: %w", from, err)
	}
	if err != nil {
		return exit.Usagef("%w", err)
	}
	return nil
}

// Options returns the options that the flags set.
func (o *Flags) Options(config *rest.Config) Options {
	endpoint, _ := o.resolveEndpoint()
	return Options{Config: config, Namespace: o.namespace, Endpoint: endpoint, CAFile: o.ca, ServiceAccount: o.tokenOf}
}
