// Package preview simulates the deletion of objects: it runs the collector's own code on
// a copy of the cluster's metadata until nothing changes any more.
//
// It writes nothing to the cluster. If an outcome cannot be determined, it is Unknown,
// never Stays.
package preview

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/gleaner-dev/gleaner/operator/decide"
	"github.com/gleaner-dev/gleaner/operator/gather"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/modulecall"
	"github.com/gleaner-dev/gleaner/operator/record"
	"github.com/gleaner-dev/gleaner/operator/simulate"
	"github.com/gleaner-dev/gleaner/operator/statekey"
	"github.com/gleaner-dev/gleaner/operator/survey"
	"github.com/gleaner-dev/gleaner/policies"
	"github.com/gleaner-dev/gleaner/policies/builtin"
)

// Options configure a preview.
type Options struct {
	Survey  *survey.Survey // not reusable: the simulation modifies its graph
	Config  *rest.Config   // to read objects for policies; nil if all objects are from files
	Targets []graph.ID     // at least one; deleted one after another, at the same time

	// Cascade is the propagation policy of the requests. "" is none: then the finalizers of
	// the object determine it, or the default of its type.
	Cascade metav1.DeletionPropagation

	// Keys returns the operator's keys for state annotations; nil if they are unavailable.
	Keys func(context.Context) (statekey.Keys, error)

	// Policies contains the policies and finalizers in force; nil if they could not be
	// read because of Unread.
	Policies    *Reading
	PoliciesErr error

	Now time.Time
}

// simulation is a running simulation.
type simulation struct {
	options   Options
	clock     time.Time
	cluster   *simulatedCluster
	collector *simulate.Simulation

	tree tree
	*history
}

const (
	maxSettleRounds = 100_000 // rounds; each level of a tree takes a few
	maxPhases       = 200     // phases; each ends one wait
	maxWaits        = 5       // evaluations of a policy that always returns Wait
)

// Delete previews the deletion of objects.
func Delete(ctx context.Context, o Options) (*Preview, error) {
	o.Now = o.Now.Truncate(time.Second) // like times in objects
	p := &simulation{
		options: o, clock: o.Now, history: newHistory(),
	}
	now := func() time.Time { return p.clock }
	p.cluster = newSimulatedCluster(o.Survey, now)
	var targets []*object
	for _, id := range o.Targets {
		target, ok := p.cluster.objects[id]
		if !ok {
			return nil, errors.New("the object was not found: it was just deleted, or its type cannot be listed, watched and deleted")
		}
		targets = append(targets, target)
	}
	p.tree = p.buildTree(targets)
	p.newCollector(ctx, now)
	p.collector.QueueHolds(p.tree.has)
	if err := p.runUntilIdle(ctx); err != nil {
		return nil, err
	}
	if err := p.deleteTargets(); err != nil {
		return nil, err
	}
	if err := p.runUntilIdle(ctx); err != nil {
		return nil, err
	}
	first := p.capture()
	for p.phase = 1; p.phase < maxPhases && p.advance(); p.phase++ {
		if err := p.runUntilIdle(ctx); err != nil {
			return nil, err
		}
	}
	r := reporter{options: o, tree: p.tree, cluster: p.cluster, history: p.history, first: first}
	return r.report(), nil
}

// deleteTargets sends the requests.
func (p *simulation) deleteTargets() error {
	var options metav1.DeleteOptions
	if p.options.Cascade != "" {
		options.PropagationPolicy = &p.options.Cascade
	}
	for _, id := range p.options.Targets {
		p.touch(id)
		target, ok := p.cluster.objects[id]
		if !ok {
			continue
		}
		if err := p.cluster.delete(target, options); err != nil {
			return fmt.Errorf("delete %s: %w", target, err)
		}
	}
	return nil
}

// newCollector creates the collector that runs on the copy.
func (p *simulation) newCollector(ctx context.Context, now func() time.Time) {
	s := p.options.Survey
	reader := &simulatedReader{cluster: p.cluster, objects: map[objectKey]*unstructured.Unstructured{}, addUncertainty: p.addUncertainty}
	if p.options.Config != nil {
		reader.live = modulecall.NewLiveReader(p.options.Config)
	}
	var set *policies.Set
	if p.options.Policies != nil {
		set = p.options.Policies.Policies
	}
	reader.policies = set
	p.collector = simulate.New(simulate.Cluster{
		Graph: s.Graph, Client: simulatedClient{p.cluster}, Serves: p.cluster.serves, Reader: reader, Intents: reader,
		Types:    gather.Sources{Catalog: s.Catalog, Absent: s.Absent, VerifyEmpty: s.VerifyEmpty},
		Policies: set, Default: builtin.Policy{}, Now: now,
		Keys: p.keys(ctx), OnUnverified: func(why error) { p.addUncertainty(why.Error()) },
		OnDecision: p.addDecision, OnReconcile: func(id graph.ID) { p.current = id },
	})
}

// addDecision records a decision.
func (p *simulation) addDecision(e record.Entry) {
	id := graph.IDOf(e.Object.UID)
	p.touch(id)
	p.decisions[id] = append(p.decisions[id], e)
	if e.Reason == decide.PolicyFault && p.options.Policies == nil {
		p.addUncertainty(fmt.Sprintf("policies could not be read: %v", p.options.PoliciesErr))
	}
	if p.options.Policies == nil {
		return
	}
	for _, a := range e.Evaluations {
		if cause, is := p.options.Policies.NotFetched[a.Policy]; is && a.Fault != "" && a.Mode != "Monitor" {
			p.addUncertainty(fmt.Sprintf("%s cannot be evaluated here: %s", a.Policy, cause))
		}
	}
}

// runUntilIdle runs the simulation until nothing changes at the current time.
func (p *simulation) runUntilIdle(ctx context.Context) error {
	for range maxSettleRounds {
		if err := ctx.Err(); err != nil {
			return err
		}
		for _, e := range p.cluster.takeEvents() {
			p.addEvent(e, p.clock)
			p.collector.Apply(e)
		}
		worked, failed := p.collector.Work(ctx)
		for id, err := range failed {
			p.touch(id)
			p.current = id
			p.addUncertainty(err.Error())
		}
		if !worked && len(p.cluster.pendingEvents) == 0 && !p.runControllers() {
			return nil
		}
	}
	return errors.New("the simulation does not terminate: please report this bug")
}

// advance ends a wait for something outside of the simulation: other controllers remove their
// finalizers, then time passes. It returns false if nothing is waited for.
func (p *simulation) advance() bool {
	freed := false
	for _, o := range p.terminating() {
		if others := otherFinalizers(o); len(others) != 0 {
			m := o.writable()
			m.Finalizers = slices.DeleteFunc(m.Finalizers, func(f string) bool { return slices.Contains(others, f) })
			p.cluster.updated(o)
			freed = true
		}
	}
	if freed {
		return true
	}
	for id := range p.touched {
		last := p.last(id)
		if last == nil || last.Reason != decide.PolicyWaiting {
			continue
		}
		if p.waitCounts[id]++; p.waitCounts[id] > maxWaits {
			p.collector.Forget(id)
		}
	}
	at, waits := p.collector.Next()
	if !waits {
		return false
	}
	if at.After(p.clock) {
		p.clock = at
	}
	p.collector.Wake()
	return true
}

// otherFinalizers returns the finalizers of an object that other controllers remove.
func otherFinalizers(o *object) []string {
	var others []string
	for _, f := range o.Finalizers {
		if !isGCFinalizer(f) && f != graph.Hold {
			others = append(others, f)
		}
	}
	return others
}
