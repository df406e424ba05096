// Package restore restores deleted objects to a real control plane with all of Kubernetes'
// controllers, from an archive that is read through the operator's handler. What is
// restored is compared field by field with what was archived.
package restore

import (
	"testing"
	"time"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/gleaner-dev/gleaner/devcluster"
	"github.com/gleaner-dev/gleaner/devcluster/devtest"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	devtest.Run(m, devcluster.Options{})
}

const timeout = 2 * time.Minute
