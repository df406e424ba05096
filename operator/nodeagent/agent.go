// Package nodeagent removes unused images and exited containers from one node, by the policies that select it: it looks at
// containers every minute and at images every five, or at once when the file system that has them is full.
//
// Before each removal it reads the image or the container again, and what may use it. It carries out one removal after the
// other, each within a time limit, and publishes what it saw and did as a value.
package nodeagent

import (
	"context"
	"errors"
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
	retryAfter       = 10 * time.Minute // of an image whose removal failed
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
	needs                                    Needs // as they were read live
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
			if wait(ctx, minInterval) != nil {
				return
			}
			a.nextContainers, a.nextImages = time.Time{}, time.Time{}
		}
	}
}

func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// turn does what is due.
func (a *Agent) turn(ctx context.Context) {
	policies, known := a.Policies()
	if !known {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, roundLimit)
	defer cancel()
	a.now = time.Now()
	pressed := a.pressed(ctx, policies)
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
		err = a.containerRound(ctx, policies)
	}
	if images && err == nil {
		a.nextImages = a.now.Add(ImageInterval)
		err = a.imageRound(ctx, policies)
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
	use, err := a.Usage(ctx)
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

// containerRound looks at containers.
func (a *Agent) containerRound(ctx context.Context, policies []noderetention.Policy) error {
	n, err := a.Runtime.Containers(ctx)
	if err != nil {
		return err
	}
	n = a.complete(ctx, n, false)
	results := noderetention.PlanContainers(n, policies, a.now)
	a.report.containers(n, results)
	if enforced(results) == 0 {
		return nil
	}
	if n = a.complete(ctx, n, true); !n.Complete {
		return nil
	}
	removed := 0
	for _, r := range noderetention.PlanContainers(n, policies, a.now) {
		for _, i := range r.Removals {
			if !r.Policy.Enforce || removed == maxRemovals || ctx.Err() != nil {
				break
			}
			removed++
			a.removeContainer(ctx, r.Policy, i)
		}
	}
	return nil
}

func enforced(results []noderetention.Result) (n int) {
	for _, r := range results {
		if r.Policy.Enforce {
			n += len(r.Removals)
		}
	}
	return n
}

func (a *Agent) removeContainer(ctx context.Context, p noderetention.Policy, i noderetention.Item) {
	exited, err := a.Runtime.Exited(ctx, i.ID)
	if err == nil && !exited {
		return
	}
	if err == nil {
		err = a.Runtime.RemoveContainer(ctx, i.ID)
	}
	a.done(Container, p, i, err)
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

// imageRound looks at images.
func (a *Agent) imageRound(ctx context.Context, policies []noderetention.Policy) error {
	n, err := a.Runtime.Node(ctx)
	if err != nil {
		return err
	}
	n = a.complete(ctx, n, false)
	a.images.Observe(n, a.now)
	use := a.usage(ctx)
	results := a.images.Plan(policies, use, a.now)
	a.report.images(n, a.images.InUse(), results)
	a.removeImages(ctx, results)
	if next := next(results); next.After(a.now) && next.Before(a.nextImages) {
		a.nextImages = next
	}
	a.report.usage(use, a.usage(ctx), lowestHigh(policies))
	return nil
}

// next returns when the first of several results changes.
func next(results []noderetention.Result) (first time.Time) {
	for _, r := range results {
		if !r.Next.IsZero() && (first.IsZero() || r.Next.Before(first)) {
			first = r.Next
		}
	}
	return first
}

// usage returns nil if it is not known.
func (a *Agent) usage(ctx context.Context) *retain.Usage {
	use, err := a.Usage(ctx)
	a.report.usageUnread = err
	if err != nil {
		return nil
	}
	return &use
}

func (a *Agent) removeImages(ctx context.Context, results []noderetention.Result) {
	tried := 0
	for _, r := range results {
		for _, i := range r.Removals {
			if !r.Policy.Enforce || tried == maxRemovals || ctx.Err() != nil {
				break
			}
			if i.Reason == retain.Pressure && a.isRelieved(ctx, r.Policy) {
				break
			}
			tried++
			if !a.removeImage(ctx, r.Policy, i) {
				return
			}
		}
	}
}

// isRelieved reports whether the usage is as low as a policy wants it. Removals free more than the runtime says that images
// have: it counts them packed, and they are unpacked as well.
func (a *Agent) isRelieved(ctx context.Context, p noderetention.Policy) bool {
	use, err := a.Usage(ctx)
	return err == nil && use.Capacity > 0 && use.Available >= use.Capacity/100*int64(100-p.Images.Usage.Low)
}

// removeImage removes an image if nothing uses it, and it is as it was when that was decided. It returns false if the state of
// the node can't be read.
func (a *Agent) removeImage(ctx context.Context, p noderetention.Policy, i noderetention.Item) bool {
	same, err := a.isUnused(ctx, i)
	if err != nil {
		a.done(Image, p, i, err)
		return false
	}
	if !same {
		return true
	}
	err = a.Runtime.RemoveImage(ctx, i.ID)
	if err != nil {
		a.images.Failed(i.ID, time.Now().Add(retryAfter))
	}
	if errors.Is(err, noderetention.ErrRefused) {
		a.report.refused()
		a.Log.Info("the container runtime does not remove an image that is in use", "name", i.Name, "id", i.ID, "policy", p.Name)
		return true
	}
	a.done(Image, p, i, err)
	return true
}

// isUnused reads an image, and what may use it.
func (a *Agent) isUnused(ctx context.Context, i noderetention.Item) (bool, error) {
	n, err := a.Runtime.Containers(ctx)
	if err != nil {
		return false, err
	}
	if n = a.complete(ctx, n, true); !n.Complete {
		return false, a.report.usesUnread
	}
	image, found, err := a.Runtime.Image(ctx, i.ID)
	if err != nil || !found {
		return false, err
	}
	n.Images = []noderetention.Image{image}
	return n.IsUnused(i.ID) && sameNames(image.Names, a.images.Names(i.ID)), nil
}
