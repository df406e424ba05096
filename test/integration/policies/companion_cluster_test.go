package policies

import (
	"testing"

	"github.com/gleaner-dev/gleaner/devcluster"
	"github.com/gleaner-dev/gleaner/devcluster/devtest"
	"github.com/gleaner-dev/gleaner/operator/run"
	"github.com/gleaner-dev/gleaner/test/inprocess"
)

// newDedicatedEnvOn starts a control plane for one test, without an operator.
func newDedicatedEnvOn(t *testing.T, options devcluster.Options) *dedicatedEnv {
	t.Helper()
	cluster := devtest.Start(t, options)
	if err := inprocess.CreateCRDs(t, cluster.RESTConfig()); err != nil {
		t.Fatal(err)
	}
	o := &dedicatedEnv{env: newEnvOn(t, cluster.RESTConfig(), nil), cluster: cluster}
	var err error
	if o.config, err = cluster.ConfigFor("gleaner", "system:masters"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(o.stopOperator)
	return o
}

// startOperatorWith starts a collector with other options.
func (o *dedicatedEnv) startOperatorWith(change func(*run.Options)) {
	o.Helper()
	options := o.options()
	change(&options)
	var err error
	if o.collector, o.stop, err = runCollector(options); err != nil {
		o.Fatal(err)
	}
}
