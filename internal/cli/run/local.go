package run

import (
	"context"
	"io"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/gleaner-dev/gleaner/internal/cli/modes"
	"github.com/gleaner-dev/gleaner/internal/cli/serving"
	operator "github.com/gleaner-dev/gleaner/operator/run"
)

// localCanaryTimeout is enough to detect a garbage collector on this machine. With
// startingCanaryTimeout, a companion waits for the built-in one to start.
const localCanaryTimeout, startingCanaryTimeout = 2 * time.Second, time.Minute

// LocalOptions configure a collector for a control plane on this machine.
type LocalOptions struct {
	Version, Mode              string
	DebugAddress               string // of the debug endpoints, without authentication
	WebhookAddress, WebhookURL string
	Archive                    string // location of the archive; empty: none
}

// AssembleLocal creates a collector for a control plane on this machine, and the manager that
// runs it. There is no leader election, and finalizers may send requests to loopback.
func AssembleLocal(ctx context.Context, l LocalOptions, config *rest.Config, log logr.Logger) (*operator.Operator, manager.Manager, error) {
	o := defaultOptions()
	o.version, o.collector = l.Version, l.Mode
	o.archive = l.Archive
	o.enableWebhooks, o.webhookAddress, o.webhookURL = true, l.WebhookAddress, l.WebhookURL
	o.metricsAddress, o.insecureDebug, o.probeAddress = l.DebugAddress, true, "0"
	o.canaryTimeout, o.leaderElect = localCanaryTimeout, false
	if l.Mode == modes.Companion {
		o.canaryTimeout = startingCanaryTimeout
	}
	o.finalizerNetworks = []string{"127.0.0.0/8", "::1/128"}
	return o.assemble(ctx, config, log)
}

// DevelopmentLogger returns a logger that writes text.
func DevelopmentLogger(to io.Writer) logr.Logger { return serving.Logger(to, "text", 0) }
