// Package nodeagent removes unused images and exited containers from one node, by the policies that select it: it looks at
// containers every minute and at images every five, or at once when the file system that has them is full.
//
// Before each removal it reads the image or the container again, and what may use it. It carries out one removal after the
// other, each within a time limit, and publishes what it saw and did as a value.
package nodeagent

import (
	"context"
	"slices"
	"time"

	"github.com/go-logr/logr"

	"github.com/gleaner-dev/gleaner/operator/noderetention"
	"github.com/gleaner-dev/gleaner/operator/retain"
)

// The times of an agent. The kubelet looks at containers and images as often.
const (
	ContainerInterval = time.Minute
	ImageInterval     = 5 * time.Minute

	checkInterval    = 10 * time.Second // of the usage of the file system
	pressureInterval = time.Minute      // between two rounds because the file system is full
	minInterval      = 2 * time.Second  // between two rounds for whatever reason
	roundLimit       = 5 * time.Minute  // for a round; what is left is for the next one
	retryAfter       = 10 * time.Minute // after the removal of an image failed
	needsFor         = time.Second      // for which what Pods need is taken as read, before a removal
	maxRemovals      = 500              // of images and of containers in a round
)

// Runtime is the container runtime of the node. A call ends within a time limit of its own.
type Runtime interface {
	Reader
	Remover
}

// Reader reads what the container runtime has.
type Reader interface {
	// Node lists images, containers and sandboxes, and Containers all but images. Neither sets Complete.
	Node(context.Context) (noderetention.Node, error)
	Containers(context.Context) (noderetention.Node, error)

	// Image reads an image by its ID. It returns false if the node does not have it.
	Image(ctx context.Context, id string) (noderetention.Image, bool, error)

	// Labels reads the labels in the configuration of an image. There are none if the node does not have it.
	Labels(ctx context.Context, id string) (map[string]string, error)

	// Exited reports whether a container has exited.
	Exited(ctx context.Context, id string) (bool, error)
}

// Remover removes by ID. It is no error if there is nothing to remove.
type Remover interface {
	RemoveImage(ctx context.Context, id string) error
	RemoveContainer(ctx context.Context, id string) error
}

// Needs are what the Pods of the node need.
type Needs struct {
	Images []string // names of the images in their specs
	Live   []string // UIDs of those that have not ended
}

// Options say what an agent works with. All fields but Log are required.
type Options struct {
	Runtime Runtime

	// Needs returns what the Pods of the node need. If live is set, it asks the API server; otherwise it may be a little old.
	Needs func(ctx context.Context, live bool) (Needs, error)

	// Usage returns the usage of the file system that has the images.
	Usage func(context.Context) (retain.Usage, error)

	// Policies returns the policies that select the node. It returns false until they are known.
	Policies func() ([]noderetention.Policy, bool)

	// Review asks whether an image can be removed. An error keeps it.
	Review func(context.Context, Review) (Answer, error)

	// Publish receives a report after each round. The agent does not change it later.
	Publish func(Report)

	Log logr.Logger
}

// Agent removes images and containers from a node.
type Agent struct {
	Options
	images *noderetention.Images
	wake   chan struct{}
	now    time.Time // of the current round

	nextContainers, nextImages, nextPressure time.Time
	report                                   Report
	started                                  time.Time
	planned                                  []noderetention.Policy // with which images were looked at last
	needs                                    Needs                  // as they were read live
	needsRead                                time.Time
}

// New returns an agent that has not begun.
func New(o Options) *Agent { return &Agent{Options: o, wake: make(chan struct{}, 1)} }

// Wake has the agent look at everything soon. It does not block.
func (a *Agent) Wake() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// Run works until the context ends.
func (a *Agent) Run(ctx context.Context) {
	a.started = time.Now()
	a.images = noderetention.NewImages(a.started)
	check := time.NewTicker(checkInterval)
	defer check.Stop()
	for {
		a.turn(ctx)
		select {
		case <-ctx.Done():
			return
		case <-check.C:
		case <-a.wake:
			select { // changes often come together
			case <-ctx.Done():
				return
			case <-time.After(minInterval):
			}
			a.nextContainers, a.nextImages = time.Time{}, time.Time{}
		}
	}
}

// turn does what is due.
func (a *Agent) turn(ctx context.Context) {
	policies, known := a.Policies()
	if !known {
		return
	}
	round, cancel := context.WithTimeout(ctx, roundLimit)
	defer cancel()
	a.now = time.Now()
	pressed := a.pressed(round, policies)
	containers := pressed || !a.now.Before(a.nextContainers)
	images := pressed || !a.now.Before(a.nextImages)
	if !containers && !images {
		return
	}
	a.report.begin(a.now, policies)
	if pressed {
		a.nextPressure = a.now.Add(pressureInterval)
	}
	var err error
	if containers { // first, since images that they refer to may be unused then
		a.nextContainers = a.now.Add(ContainerInterval)
		err = a.containerRound(round, policies)
	}
	if images && err == nil {
		a.nextImages = a.now.Add(ImageInterval)
		err = a.imageRound(round, policies)
	}
	a.report.end(err)
	if err != nil && ctx.Err() == nil {
		a.Log.Error(err, "cannot look at images and containers of the node")
	}
	a.Publish(a.report.clone())
}

// pressed reports whether the usage of the file system is above what a policy that is enforced allows, and that was not tried to
// be mended just before.
func (a *Agent) pressed(ctx context.Context, policies []noderetention.Policy) bool {
	if a.now.Before(a.nextPressure) || lowestHigh(policies) > 100 {
		return false
	}
	use, err := a.readUsage(ctx)
	return err == nil && UsedPercent(use) >= lowestHigh(policies)
}

// lowestHigh returns the lowest threshold of policies that are enforced; 101 if there is none.
func lowestHigh(policies []noderetention.Policy) int {
	lowest := 101
	for _, p := range policies {
		if p.Enforce && p.Images != nil && p.Images.Usage != nil {
			lowest = min(lowest, p.Images.Usage.High)
		}
	}
	return lowest
}

// UsedPercent returns how much is used, rounded up as by the kubelet; 0 if that is not known.
func UsedPercent(u retain.Usage) int {
	if u.Capacity <= 0 || u.Available < 0 {
		return 0
	}
	return 100 - int(float64(min(u.Available, u.Capacity))/float64(u.Capacity)*100)
}

// complete adds what Pods need. Without it, nothing that they may need is unused.
func (a *Agent) complete(ctx context.Context, n noderetention.Node, live bool) noderetention.Node {
	needs, err := a.readNeeds(ctx, live)
	if a.report.usesUnread = err; err != nil {
		return n
	}
	a.report.usesRead = true
	n.LivePods = needs.Live
	n.Needed = append(append([]string(nil), n.Needed...), needs.Images...)
	n.Complete = true
	return n
}

// readNeeds returns what Pods need: live, as it was read a moment ago at most.
func (a *Agent) readNeeds(ctx context.Context, live bool) (Needs, error) {
	if !live {
		return a.Needs(ctx, false)
	}
	if time.Since(a.needsRead) <= needsFor {
		return a.needs, nil
	}
	needs, err := a.Needs(ctx, true)
	if err == nil {
		a.needs, a.needsRead = needs, time.Now()
	}
	return needs, err
}

// unchanged reports whether the policies are those that a round began with.
func (a *Agent) unchanged(policies []noderetention.Policy) bool {
	now, known := a.Policies()
	return known && same(now, policies)
}

func same(a, b []noderetention.Policy) bool {
	return slices.EqualFunc(a, b, func(x, y noderetention.Policy) bool {
		return x.Name == y.Name && x.UID == y.UID && x.Generation == y.Generation && x.Enforce == y.Enforce
	})
}

// done notes that something was removed, or was not.
func (a *Agent) done(kind Kind, p noderetention.Policy, i noderetention.Item, err error) {
	if err != nil {
		a.Log.Error(err, "cannot remove", "type", kind, "name", i.Name, "id", i.ID, "policy", p.Name, "reason", i.Reason)
	} else {
		a.Log.Info("removed", "type", kind, "name", i.Name, "id", i.ID, "sizeBytes", i.Size, "policy", p.Name, "reason", i.Reason)
	}
	a.report.done(Removal{Kind: kind, Item: i, Policy: p.Name, Time: time.Now(), Err: err})
}
