package archive

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gleaner-dev/gleaner/test/program"
	"github.com/gleaner-dev/gleaner/test/proxy"
)

// gleaner restore is killed before and after it creates an object, and in between, and run again.
func TestRestore_SIGKILL_IsContinued(t *testing.T) {
	e, location := newEnv(t, primary.start(t)), "file://"+t.TempDir()
	e.DefineTypes("Root", "Middle", "Leaf")
	g := e.operate(t, location)
	e.policy("all", `resources: [{apiGroups: [""], resources: [configmaps]}, {apiGroups: [restore.example.com], resources: [roots, middles, leafs]}]`)
	former := e.Tree()
	former = append(former, e.createMany("below", 60, former[1])...)
	e.Remove(former[:1], former...)
	kills := 0
	for e.restoreOnce(g, moment(kills%int(moments))) {
		kills++
	}
	t.Logf("killed %d times", kills)
	if kills < 3 {
		t.Errorf("killed only %d times", kills)
	}
	e.Compare(former)
	out := g.restore(e.testbed, "root/root", "-n", e.Namespace)
	if !strings.Contains(out, fmt.Sprintf("Restored 0 objects; %d restored before", len(former))) {
		t.Errorf("once more:\n%s", out)
	}
	if got := len(e.List("v1", "ConfigMap")); got != 62 { // with kube-root-ca.crt
		t.Errorf("there are %d ConfigMaps", got)
	}
}

// restoreOnce restores until it is killed, or is done.
func (e *env) restoreOnce(g *operator, at moment) (killed bool) {
	e.Helper()
	k := &killer{after: rand.N(20)}
	fault := e.killAt(e.T, k, at, proxy.InNamespace(e.Namespace, "create", "patch", "update"))
	defer fault.Lift()
	cmd := exec.CommandContext(e.Context(), gleaner.Path(e.T), "restore", "root/root", "-n", e.Namespace, "--yes", "--endpoint="+g.endpoint, "--kubeconfig="+e.throughProxy())
	var out bytes.Buffer
	cmd.Stdout = &out
	process, err := program.Start(cmd)
	if err != nil {
		e.Fatal(err)
	}
	k.target(process)
	if err := process.Wait(timeout); err != nil {
		e.Fatalf("%v: %s\n%s", err, process.Log.String(), out.String())
	}
	return process.IsKilled()
}

// Gleaner deletes and archives 1,000 dependents, and all are restored through it.
func TestRestore_AThousandDependents(t *testing.T) {
	e, location := newEnv(t, primary.start(t)), "file://"+t.TempDir()
	g := e.operate(t, location)
	e.policy("owners", configMaps("owners"))
	e.policy("below", configMaps("below")+", deletedBy: Gleaner")
	owner := e.labelled("owner", "owners")
	many := 1000
	if testing.Short() {
		many = 200
	}
	former := append([]*unstructured.Unstructured{owner}, e.createMany("below", many, owner)...)
	began := time.Now()
	e.Delete(owner, metav1.DeletePropagationBackground)
	e.waitUntilEmpty()
	t.Logf("%d objects were archived and deleted in %s", len(former), time.Since(began).Round(time.Millisecond))
	began = time.Now()
	out := g.restore(e.testbed, "configmap/owner", "-n", e.Namespace)
	t.Logf("%d objects were restored in %s", len(former), time.Since(began).Round(time.Millisecond))
	if !strings.Contains(out, fmt.Sprintf("Restored %[1]d objects (ConfigMap: %[1]d).", len(former))) {
		t.Errorf("got\n%s", out[max(0, len(out)-1000):])
	}
	e.Compare(former)
}
