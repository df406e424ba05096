package certs

import (
	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

const (
	rotatorName = "cert-rotation" // of cert-controller's logger

	// stillEmpty is what cert-controller says of a Secret that it is filling elsewhere at
	// that moment; what is wrong with it has no type.
	stillEmpty = "secret is not well-formed, cannot update webhook configurations"
)

// Quiet returns a logger that tells of three things by V(1) which cert-controller takes
// for errors, and which every start has: without a policy there is no configuration to
// write to, the Secret is empty at first, and another replica, or Gleaner itself, may
// have written first. All of it is tried again; that there is no certificate is told
// by /readyz.
func Quiet(log logr.Logger) logr.Logger {
	if log.GetSink() == nil { // it tells nothing anyway
		return log
	}
	return log.WithSink(quiet{LogSink: log.GetSink()})
}

type quiet struct {
	logr.LogSink
	rotator bool
}

// WithName implements logr.LogSink.
func (q quiet) WithName(name string) logr.LogSink {
	return quiet{q.LogSink.WithName(name), q.rotator || name == rotatorName}
}

// WithValues implements logr.LogSink.
func (q quiet) WithValues(pairs ...any) logr.LogSink {
	return quiet{q.LogSink.WithValues(pairs...), q.rotator}
}

// WithCallDepth implements logr.CallDepthLogSink.
func (q quiet) WithCallDepth(depth int) logr.LogSink {
	if sink, ok := q.LogSink.(logr.CallDepthLogSink); ok {
		return quiet{sink.WithCallDepth(depth), q.rotator}
	}
	return q
}

// Error implements logr.LogSink.
func (q quiet) Error(err error, text string, pairs ...any) {
	deeper := q.WithCallDepth(1).(quiet).LogSink // this is a call on the way
	switch {
	case !q.rotator || !usual(err, text):
		deeper.Error(err, text, pairs...)
	case q.Enabled(1):
		deeper.Info(1, text, append(pairs, "error", err.Error())...)
	}
}

func usual(err error, text string) bool {
	return text == stillEmpty || apierrors.IsNotFound(err) || apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err)
}
