package nodeagent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gleaner-dev/gleaner/operator/noderetention"
	"github.com/gleaner-dev/gleaner/operator/retain"
)

const (
	reviewTimeout = 15 * time.Second // for an answer about one image
	reviewRetry   = time.Minute      // after there was none
)

// errNoAnswer says that policies can't be evaluated now: then none of the images of a round is removed.
var errNoAnswer = errors.New("policies can't be evaluated")

// Review is the question whether an image can be removed.
type Review struct {
	Image               noderetention.Image
	Labels              map[string]string // of the image
	FirstSeen, LastUsed time.Time         // zero: never seen in use
	Policy              string
	Limit               retain.Reason
}

// Answer is the answer. The zero Answer keeps the image.
type Answer struct {
	Remove bool
	By     string        // what has decided, for people
	Reason string        // for people
	After  time.Duration // until it is asked again
}

// reviews reports whether policies are evaluated before an image is removed.
func reviews(policies []noderetention.Policy) bool {
	return slices.ContainsFunc(policies, func(p noderetention.Policy) bool { return p.Enforce && p.Images != nil && p.Images.EvaluatePolicies })
}

// review asks about an image, and reports whether it can be removed. Its error is errNoAnswer, or says why the runtime can't be asked.
func (a *Agent) review(ctx context.Context, p noderetention.Policy, i noderetention.Item) (bool, error) {
	image, found, err := a.Runtime.Image(ctx, i.ID)
	if err != nil || !found {
		return false, err
	}
	labels, err := a.Runtime.Labels(ctx, i.ID)
	if err != nil {
		return false, err
	}
	first, last := a.images.Seen(i.ID)
	ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
	defer cancel()
	answer, err := a.Review(ctx, Review{Image: image, Labels: labels, FirstSeen: first, LastUsed: last, Policy: p.Name, Limit: i.Reason})
	now := time.Now()
	switch {
	case err != nil:
		a.images.Hold(i.ID, now.Add(reviewRetry), "policies can't be evaluated")
		a.done(Image, p, i, fmt.Errorf("%w: %w", errNoAnswer, err))
		return false, errNoAnswer
	case !answer.Remove:
		a.images.Hold(i.ID, now.Add(max(answer.After, reviewRetry)), answer.By)
		a.report.spare(i.ID)
		a.Log.Info("a policy keeps an image", "name", i.Name, "id", i.ID, "policy", answer.By, "reason", answer.Reason)
	}
	return answer.Remove, nil
}
