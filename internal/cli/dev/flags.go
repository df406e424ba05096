package dev

import (
	"github.com/spf13/pflag"

	"github.com/gleaner-dev/gleaner/devcluster"
	"github.com/gleaner-dev/gleaner/devcluster/download"
	"github.com/gleaner-dev/gleaner/internal/cli/modes"
)

const noIndex = "none"

// Flags are the flags of commands that start a control plane.
type Flags struct {
	companion       bool
	index, releases string
	version         string
}

// AddTo adds the flags.
func (f *Flags) AddTo(flags *pflag.FlagSet) {
	flags.BoolVar(&f.companion, modes.Companion, false, "run Gleaner in companion mode, with the built-in garbage collector of kube-controller-manager enabled")
	flags.StringVar(&f.index, "index", download.DefaultIndex, "`URL` of the index from which the programs of envtest are downloaded if they have not been built; without an answer within seconds, or with "+
		noIndex+", they are built from source")
	flags.StringVar(&f.releases, "releases", download.DefaultReleases, "`URL` of the release files of Kubernetes, for kube-controller-manager, which envtest lacks")
	flags.StringVar(&f.version, "kubernetes-version", "", "`version` of Kubernetes, such as 1.35 or v1.35.4; by default $GLEANER_KUBERNETES_VERSION, or the one that Gleaner is developed with")
}

// Mode returns the mode of Gleaner.
func (f *Flags) Mode() string {
	if f.companion {
		return modes.Companion
	}
	return modes.Primary
}

// ControlPlane returns a complete control plane.
func (f *Flags) ControlPlane() devcluster.Options {
	o := devcluster.Options{KubernetesVersion: f.version}
	if f.index != noIndex {
		o.Download = download.Source{Index: f.index, Releases: f.releases}
	}
	return o
}
