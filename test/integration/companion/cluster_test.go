package policies

import (
	"os"
	"testing"

	"github.com/gleaner-dev/gleaner/devcluster"
	"github.com/gleaner-dev/gleaner/operator/loop"
	"github.com/gleaner-dev/gleaner/test/inside"
)

// operationOn is a control plane of its own, on which nothing of ours runs yet.
func operationOn(t *testing.T, options devcluster.Options) *operation {
	t.Helper()
	if _, err := devcluster.Build(t.Context(), os.Stderr); err != nil {
		t.Fatal(err)
	}
	cluster, err := devcluster.Start(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cluster.Stop(); err != nil {
			t.Error(err)
		}
	})
	if err := inside.Define(t, cluster.RESTConfig()); err != nil {
		t.Fatal(err)
	}
	o := &operation{world: worldOn(t, cluster.RESTConfig(), nil), cluster: cluster}
	if o.config, err = cluster.ConfigFor("gleaner", "system:masters"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(o.end)
	return o
}

// startWith starts a collector with other options.
func (o *operation) startWith(change func(*loop.Options)) {
	o.Helper()
	options := o.options()
	change(&options)
	var err error
	if o.collector, o.stop, err = run(options); err != nil {
		o.Fatal(err)
	}
}
