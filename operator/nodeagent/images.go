package nodeagent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gleaner-dev/gleaner/operator/noderetention"
	"github.com/gleaner-dev/gleaner/operator/retain"
)

// imageRound looks at images. Its error says why the runtime can't be asked.
func (a *Agent) imageRound(ctx context.Context, policies []noderetention.Policy) error {
	n, err := a.Runtime.Node(ctx)
	if err != nil {
		return err
	}
	a.needsRead = time.Time{} // a Pod that was assigned before its image was listed keeps it
	n = a.complete(ctx, n, false)
	if !same(a.planned, policies) {
		a.images.Release()
		a.planned = policies
	}
	a.images.Observe(n, a.now)
	use := a.usage(ctx)
	results := a.images.Plan(policies, use, a.now)
	a.report.images(n, a.images.InUse(), results)
	err = a.removeImages(ctx, policies, results)
	if next := next(results); next.After(a.now) && next.Before(a.nextImages) {
		a.nextImages = next
	}
	a.report.usage(use, a.usage(ctx), lowestHigh(policies))
	return err
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
	use, err := a.readUsage(ctx)
	a.report.usageUnread = err
	if err != nil {
		return nil
	}
	return &use
}

// readUsage returns an error also for a usage that can't be (P-07).
func (o Options) readUsage(ctx context.Context) (retain.Usage, error) {
	use, err := o.Usage(ctx)
	if err == nil && (use.Capacity <= 0 || use.Available < 0) {
		err = fmt.Errorf("the file system reports a size of %d bytes, of which %d are available", use.Capacity, use.Available)
	}
	return use, err
}

func (a *Agent) removeImages(ctx context.Context, policies []noderetention.Policy, results []noderetention.Result) error {
	tried := 0
	for _, r := range results {
		for _, i := range r.Removals {
			if !r.Policy.Enforce || tried == maxRemovals || ctx.Err() != nil || !a.isDue(ctx, policies, r.Policy, i) {
				break
			}
			tried++
			err := a.removeImage(ctx, policies, r.Policy, i)
			if errors.Is(err, errNoAnswer) {
				return nil // the report has it
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// isDue reports whether the removal of an image is due as it was when that was decided.
func (a *Agent) isDue(ctx context.Context, policies []noderetention.Policy, p noderetention.Policy, i noderetention.Item) bool {
	return a.unchanged(policies) && (i.Reason != retain.Pressure || a.isPressed(ctx, p))
}

// isPressed reports whether the usage is known, and above the lower threshold of a policy. Removals free more than the runtime says
// that images have: it counts them packed, and they are unpacked as well.
func (a *Agent) isPressed(ctx context.Context, p noderetention.Policy) bool {
	use, err := a.readUsage(ctx)
	return err == nil && use.Available < use.Capacity/100*int64(100-p.Images.Usage.Low)
}

// removeImage removes an image if nothing uses it, and it is as it was when that was decided. Its error says why the runtime can't
// be asked, or is errNoAnswer.
func (a *Agent) removeImage(ctx context.Context, policies []noderetention.Policy, p noderetention.Policy, i noderetention.Item) error {
	unused, err := a.isUnused(ctx, i)
	if err != nil || !unused {
		return err
	}
	if reviews(policies) {
		removable, err := a.review(ctx, p, i)
		if err != nil || !removable || !a.isDue(ctx, policies, p, i) {
			return err
		}
		if unused, err = a.isUnused(ctx, i); err != nil || !unused { // an answer can take seconds
			return err
		}
	}
	err = a.Runtime.RemoveImage(ctx, i.ID)
	if err != nil {
		a.images.Hold(i.ID, time.Now().Add(retryAfter), "its removal failed")
	}
	if errors.Is(err, noderetention.ErrRefused) {
		a.report.refused()
		a.Log.Info("the container runtime does not remove an image that is in use", "name", i.Name, "id", i.ID, "policy", p.Name)
		return nil
	}
	a.done(Image, p, i, err)
	return nil
}

// isUnused reads an image, and what may use it. What has not been read is not unused.
func (a *Agent) isUnused(ctx context.Context, i noderetention.Item) (bool, error) {
	n, err := a.Runtime.Containers(ctx)
	if err != nil {
		return false, err
	}
	if n = a.complete(ctx, n, true); !n.Complete {
		return false, nil // the report says so
	}
	image, found, err := a.Runtime.Image(ctx, i.ID)
	if err != nil || !found {
		return false, err
	}
	n.Images = []noderetention.Image{image}
	return n.IsUnused(i.ID) && sameNames(image.Names, a.images.Names(i.ID)), nil
}
