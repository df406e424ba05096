package policies

import (
	"testing"

	"github.com/gleaner-dev/gleaner/devcluster"
	"github.com/gleaner-dev/gleaner/devcluster/devtest"
	"github.com/gleaner-dev/gleaner/operator/loop"
	"github.com/gleaner-dev/gleaner/test/inside"
)

// operationOn is a control plane of its own, on which nothing of ours runs yet.
func operationOn(t *testing.T, options devcluster.Options) *operation {
	t.Helper()
	cluster := devtest.Start(t, options)
	if err := inside.Define(t, cluster.RESTConfig()); err != nil {
		t.Fatal(err)
	}
	o := &operation{world: worldOn(t, cluster.RESTConfig(), nil), cluster: cluster}
	var err error
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
