package modules

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// reasonNotVerified is why a policy is not enforced against a collector of which no canary
// has shown that the API server asks about what it deletes.
const reasonNotVerified = "CollectorNotVerified"

// verifyPoll is between two looks for what a replica has heard of a canary.
const verifyPoll = 100 * time.Millisecond

// verification is what the last canary has shown: that all is well, or an error.
type verification struct{ err error }

// errToBeTold passes by itself: the API server is told whom to ask about, and then another
// canary is let out.
var errToBeTold = errors.New("the other collector has shown as whom it works, and the API server has yet to be told")

// Verify finds out whether the API server has asked a replica about a canary, which
// another collector has finished. It waits for that until ctx ends. Without a webhook there
// is nothing to find out. What was found out is in the status of policies soon.
func (k *Keeper) Verify(ctx context.Context, canary types.UID) {
	err := k.awaitCanary(ctx, canary)
	if errors.Is(err, errNoWebhook) {
		return
	}
	k.verified.Store(&verification{err: err})
	k.poke()
}

// IsVerified reports whether it was seen that the API server asks about what the other
// collector deletes: by the last canary or, before the first, by the operator before this
// one.
func (k *Keeper) IsVerified() bool {
	if v := k.verified.Load(); v != nil {
		return v.err == nil && k.Mistaken() == nil
	}
	return k.Heard() != "" && k.Mistaken() == nil
}

// Refuted reports whether the last canary has shown that the other collector is not kept
// from deleting.
func (k *Keeper) Refuted() bool { return k.verified.Load() != nil && !k.IsVerified() }

var errNoWebhook = errors.New("no webhook is configured")

func (k *Keeper) awaitCanary(ctx context.Context, canary types.UID) error {
	tick := time.NewTicker(verifyPoll)
	defer tick.Stop()
	for {
		configuration := &admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: VetoName}}
		err := k.client.Get(ctx, client.ObjectKeyFromObject(configuration), configuration)
		switch {
		case apierrors.IsNotFound(err):
			return errNoWebhook
		case err == nil && configuration.Annotations[canaryAnnotation] == string(canary):
			if user := k.CollectorUser(); configuration.Annotations[heardAnnotation] != user || !asksAbout(configuration, user) {
				return errToBeTold
			}
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the other collector has finished a canary, and the API server has asked no replica about it: it does not reach the webhook, "+
				"or the other collector works as Gleaner's own user; it is taken to be %s", k.CollectorUser())
		case <-tick.C:
		}
	}
}

// asksAbout reports whether a configuration has the API server ask about what a user deletes.
func asksAbout(configuration *admissionv1.ValidatingWebhookConfiguration, user string) bool {
	for _, webhook := range configuration.Webhooks {
		for _, condition := range webhook.MatchConditions {
			if condition.Name == collectorCondition && strings.Contains(condition.Expression, strconv.Quote(user)) {
				return true
			}
		}
	}
	return false
}

// unverified says why it was not seen that the other collector is kept from what policies
// keep, "" if it was, and whether it won't be by waiting.
func (k *Keeper) unverified() (why string, refuted bool) {
	veto, v := k.options.Veto, k.verified.Load()
	switch {
	case veto == nil || k.IsVerified():
		return "", false
	case v != nil && v.err != nil && !errors.Is(v.err, errToBeTold):
		return v.err.Error(), true
	case veto.NoCanary:
		return "whether the API server asks Gleaner first is not found out with --canary-timeout=0", true
	default:
		return "no canary has shown it yet", false
	}
}
