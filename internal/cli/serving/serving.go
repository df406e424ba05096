// Package serving has what the commands that run until they are stopped have in common: their client configuration, their log, and
// the addresses that they serve at.
package serving

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"

	"github.com/go-logr/logr"
	"go.uber.org/zap/zapcore"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
)

// Config returns the client configuration for the API server: that of a kubeconfig file; without one, of $KUBECONFIG, of the pod's
// service account, or of ~/.kube/config.
func Config(kubeconfig string) (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = kubeconfig
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	switch {
	case err != nil && clientcmd.IsEmptyConfig(err):
		return nil, errors.New("no API server configured: set --kubeconfig, or run in a pod")
	case err != nil:
		return nil, fmt.Errorf("load kubeconfig: %w; check --kubeconfig", err)
	}
	return config, nil
}

// Logger returns a log in a format, json or text.
func Logger(to io.Writer, format string, verbosity int) logr.Logger {
	return zap.New(zap.WriteTo(to), zap.Level(zapcore.Level(-verbosity)), func(z *zap.Options) { //nolint:gosec // from 0 to 10
		z.Development = format == "text"
		z.StacktraceLevel = zapcore.DPanicLevel
	})
}

// IsAddress reports whether a text is an address to bind, or 0 for none.
func IsAddress(text string) bool {
	_, port, err := net.SplitHostPort(text)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	return text == "0" || err == nil
}

// OnLoopback reports whether an address can be reached from the machine only.
func OnLoopback(address string) bool {
	if address == "0" {
		return true
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
