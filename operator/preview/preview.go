// Package preview tells what would become of a cluster's objects if one of them were
// deleted: it has the collector's own code decide about a copy of their metadata,
// until nothing changes any more.
//
// It writes nothing to the cluster. What it can't know it says is unknown, and never
// that it stays.
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

	"github.com/gleaner-dev/gleaner/operator/consult"
	"github.com/gleaner-dev/gleaner/operator/decide"
	"github.com/gleaner-dev/gleaner/operator/gather"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/loop"
	"github.com/gleaner-dev/gleaner/operator/modules"
	"github.com/gleaner-dev/gleaner/operator/record"
	"github.com/gleaner-dev/gleaner/operator/statekey"
	"github.com/gleaner-dev/gleaner/operator/survey"
	"github.com/gleaner-dev/gleaner/policies"
	"github.com/gleaner-dev/gleaner/policies/builtin"
)

// Options say what is to be previewed.
type Options struct {
	Survey  *survey.Survey // is used up: its graph is changed
	Config  *rest.Config   // with what rights objects are read for policies; nil: all is from files
	Target  graph.ID
	Cascade metav1.DeletionPropagation

	// Keys verify what the operator has signed in the cluster; nil: that can't be verified.
	Keys func(context.Context) (statekey.Keys, error)

	// Reading are the policies and finalizers in force; nil where they are not known,
	// for Unread.
	Reading *modules.Reading
	Unread  error

	Now time.Time
}

// preview is one preview as it goes on.
type preview struct {
	options Options
	clock   time.Time
	world   *world
	stage   *loop.Rehearsal

	turn      graph.ID // whose turn it is
	tree      tree
	touched   map[graph.ID]struct{}       // everything that something was done about
	decisions map[graph.ID][]record.Entry // in order
	doubts    map[graph.ID][]string       // why a decision is not to be relied on
	swept     map[graph.ID]swept          // what is deleted with its namespace or its type
	endings   map[graph.ID]ending
	orphans   map[graph.ID]struct{} // what has let its dependents go
	waited    map[graph.ID]struct{} // what has waited for its dependents, be it for none
	asked     map[graph.ID]int      // how often a policy has said to wait, after the first phase
	phase     int                   // 0: what happens at once
}

// swept is an object that is deleted for another reason than its owners.
type swept struct {
	by  graph.ID
	why string
}

// ending is when an object has come to its end.
type ending struct {
	phase int
	at    time.Time
}

const (
	longestSettling = 100_000 // rounds, of which every level of a tree takes a few
	longestWaiting  = 200     // phases: each is about something that was waited for
	mostQuestions   = 5       // to a policy that always says to wait
)

// Delete previews the deletion of an object.
func Delete(ctx context.Context, o Options) (*Preview, error) {
	o.Now = o.Now.Truncate(time.Second) // as times are kept on objects
	p := &preview{
		options: o, clock: o.Now, touched: map[graph.ID]struct{}{}, decisions: map[graph.ID][]record.Entry{},
		doubts: map[graph.ID][]string{}, swept: map[graph.ID]swept{}, endings: map[graph.ID]ending{}, orphans: map[graph.ID]struct{}{}, waited: map[graph.ID]struct{}{}, asked: map[graph.ID]int{},
	}
	now := func() time.Time { return p.clock }
	p.world = newWorld(o.Survey, now)
	target, ok := p.world.objects[o.Target]
	if !ok {
		return nil, errors.New("the object to be deleted is not among those that were read: it has just gone, or its type can't be listed, watched and deleted")
	}
	p.tree = p.plant(target)
	p.rehearse(ctx, now)
	p.stage.Hold(p.tree.has)
	if err := p.settle(ctx); err != nil {
		return nil, err
	}
	p.touch(target.id)
	if target, ok = p.world.objects[o.Target]; ok {
		if err := p.world.delete(target, metav1.DeleteOptions{PropagationPolicy: &o.Cascade}); err != nil {
			return nil, fmt.Errorf("delete %s: %w", target, err)
		}
	}
	if err := p.settle(ctx); err != nil {
		return nil, err
	}
	first := p.photograph()
	for p.phase = 1; p.phase < longestWaiting && p.goOn(); p.phase++ {
		if err := p.settle(ctx); err != nil {
			return nil, err
		}
	}
	return p.tell(first), nil
}

// rehearse sets the collector up on the copy.
func (p *preview) rehearse(ctx context.Context, now func() time.Time) {
	s := p.options.Survey
	reader := &reader{world: p.world, bodies: map[body]*unstructured.Unstructured{}, doubt: p.doubt}
	if p.options.Config != nil {
		reader.live = consult.NewLive(p.options.Config)
	}
	var set *policies.Set
	if p.options.Reading != nil {
		set = p.options.Reading.Policies
	}
	reader.policies = set
	p.stage = loop.Rehearse(loop.Stage{
		Graph: s.Graph, Client: server{p.world}, Serves: p.world.served, Reader: reader, Intents: reader,
		Types:    gather.Sources{Catalog: s.Catalog, Absent: s.Absent, Empty: s.Empty},
		Policies: set, Default: builtin.Policy{}, Now: now,
		Keys: p.keys(ctx), Unverified: func(why error) { p.doubt(why.Error()) },
		Tell: p.hear, Turn: func(id graph.ID) { p.turn = id },
	})
}

func (p *preview) touch(id graph.ID) { p.touched[id] = struct{}{} }

// doubt notes that what is decided of the object whose turn it is can't be relied on.
func (p *preview) doubt(why string) {
	if !slices.Contains(p.doubts[p.turn], why) {
		p.doubts[p.turn] = append(p.doubts[p.turn], why)
	}
}

// hear takes in a decision.
func (p *preview) hear(e record.Entry) {
	id := graph.IDOf(e.Object.UID)
	p.touch(id)
	p.decisions[id] = append(p.decisions[id], e)
	if e.Reason == decide.PolicyAtFault && p.options.Reading == nil {
		p.doubt(fmt.Sprintf("the policies can't be read: %v", p.options.Unread))
	}
	if p.options.Reading == nil {
		return
	}
	for _, a := range e.Asked {
		if why, is := p.options.Reading.Unfetched[a.Policy]; is && a.Fault != "" && a.Mode != "Monitor" {
			p.doubt(fmt.Sprintf("%s can't be asked from here: %s", a.Policy, why))
		}
	}
}

// settle goes on until there is nothing left to be done at this time.
func (p *preview) settle(ctx context.Context) error {
	for range longestSettling {
		if err := ctx.Err(); err != nil {
			return err
		}
		for _, e := range p.world.told() {
			p.note(e)
			p.stage.Apply(e)
		}
		worked, failed := p.stage.Work(ctx)
		for id, err := range failed {
			p.touch(id)
			p.turn = id
			p.doubt(err.Error())
		}
		if !worked && len(p.world.news) == 0 && !p.controllers() {
			return nil
		}
	}
	return errors.New("the preview does not come to rest: please report this")
}

// note notes what ends, and when.
func (p *preview) note(e graph.Event) {
	switch e := e.(type) {
	case graph.Deleted:
		id := graph.IDOf(e.Object.UID)
		p.touch(id)
		p.endings[id] = ending{p.phase, p.clock}
	case graph.Seen:
		id := graph.IDOf(e.Object.UID)
		p.touch(id)
		if o := e.Object; o.Terminating && o.Orphan && !o.Held {
			p.orphans[id] = struct{}{}
		} else if o.Terminating && o.Foreground && !o.Held {
			p.waited[id] = struct{}{}
		}
	}
}

// goOn has something happen that is waited for, and that others see to: finalizers
// are dealt with, and then time passes. It reports false if nothing is waited for.
func (p *preview) goOn() bool {
	freed := false
	for _, o := range p.terminating() {
		if others := othersOf(o); len(others) != 0 {
			m := o.writable()
			m.Finalizers = slices.DeleteFunc(m.Finalizers, func(f string) bool { return slices.Contains(others, f) })
			p.world.touched(o)
			freed = true
		}
	}
	if freed {
		return true
	}
	for id := range p.touched {
		last := p.last(id)
		if last == nil || last.Reason != decide.WaitsByPolicy {
			continue
		}
		if p.asked[id]++; p.asked[id] > mostQuestions {
			p.stage.Forget(id)
		}
	}
	at, waits := p.stage.Next()
	if !waits {
		return false
	}
	if at.After(p.clock) {
		p.clock = at
	}
	p.stage.Wake()
	return true
}

// othersOf are the finalizers of an object that somebody else takes off.
func othersOf(o *object) []string {
	var others []string
	for _, f := range o.Finalizers {
		if !ofCollection(f) && f != graph.Hold {
			others = append(others, f)
		}
	}
	return others
}

// last is what was decided last about an object.
func (p *preview) last(id graph.ID) *record.Entry {
	entries := p.decisions[id]
	if len(entries) == 0 {
		return nil
	}
	return &entries[len(entries)-1]
}
