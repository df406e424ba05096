package certs

import (
	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

const (
	rotatorName = "cert-rotation" // of cert-controller's logger

	// malformedSecret is cert-controller's message about a Secret that is still empty; its error
	// has no type.
	malformedSecret = "secret is not well-formed, cannot update webhook configurations"
)

// QuietLogger returns a logger that logs three kinds of errors of cert-controller at V(1), which
// are normal at startup: without a policy there is no webhook configuration, the Secret is
// empty at first, and another replica or Gleaner itself may have written first. All of them
// are retried, and /readyz reports a missing certificate.
func QuietLogger(log logr.Logger) logr.Logger {
	if log.GetSink() == nil { // it logs nothing
		return log
	}
	return log.WithSink(quietSink{LogSink: log.GetSink()})
}

type quietSink struct {
	logr.LogSink
	rotator bool
}

// WithName implements logr.LogSink.
func (q quietSink) WithName(name string) logr.LogSink {
	return quietSink{q.LogSink.WithName(name), q.rotator || name == rotatorName}
}

// WithValues implements logr.LogSink.
func (q quietSink) WithValues(pairs ...any) logr.LogSink {
	return quietSink{q.LogSink.WithValues(pairs...), q.rotator}
}

// WithCallDepth implements logr.CallDepthLogSink.
func (q quietSink) WithCallDepth(depth int) logr.LogSink {
	if sink, ok := q.LogSink.(logr.CallDepthLogSink); ok {
		return quietSink{sink.WithCallDepth(depth), q.rotator}
	}
	return q
}

// Error implements logr.LogSink.
func (q quietSink) Error(err error, text string, pairs ...any) {
	deeper := q.WithCallDepth(1).(quietSink).LogSink // skips this call
	switch {
	case !q.rotator || !isExpected(err, text):
		deeper.Error(err, text, pairs...)
	case q.Enabled(1):
		deeper.Info(1, text, append(pairs, "error", err.Error())...)
	}
}

func isExpected(err error, text string) bool {
	return text == malformedSecret || apierrors.IsNotFound(err) || apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err)
}
