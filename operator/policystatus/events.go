package policystatus

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/operator/policyset"
)

// announcedTypes are the conditions whose changes are announced by events.
var announcedTypes = []string{
	v1alpha1.ConditionAccepted, v1alpha1.ConditionModuleReady, v1alpha1.ConditionFetched, v1alpha1.ConditionCompiled,
	v1alpha1.ConditionArchiving,
}

// announcedReasons are the reasons of Enforcing that are announced as well: authors don't
// expect them.
var announcedReasons = []string{reasonNoCollector, reasonWithheld, reasonNotServed, reasonNotNamespaced, reasonNotVerified}

// announce raises events about conditions that have become bad, or good again.
func (w *Writer) announce(o client.Object, kind string, former, now []metav1.Condition) {
	for _, c := range now {
		level, ok := announcement(meta.FindStatusCondition(former, c.Type), c)
		if !ok {
			continue
		}
		w.options.Events.Event(&corev1.ObjectReference{
			APIVersion: v1alpha1.GroupVersion.String(), Kind: kind, Namespace: o.GetNamespace(), Name: o.GetName(), UID: o.GetUID(),
		}, level, c.Reason, c.Message)
	}
}

// announcement reports whether a change of a condition is announced, and by which type of
// event.
func announcement(former *metav1.Condition, c metav1.Condition) (level string, ok bool) {
	bad := c.Status != metav1.ConditionTrue
	if c.Reason == policyset.ReasonLoading || c.Status == metav1.ConditionUnknown {
		return "", false
	}
	if former != nil && former.Reason == policyset.ReasonLoading {
		former = nil // its end is announced if it is bad
	}
	if c.Type == v1alpha1.ConditionEnforcing {
		bad = slices.Contains(announcedReasons, c.Reason)
		ok = bad && (former == nil || former.Reason != c.Reason) || !bad && former != nil && slices.Contains(announcedReasons, former.Reason)
	} else {
		ok = slices.Contains(announcedTypes, c.Type) && (former == nil && bad || former != nil && (former.Status != c.Status || former.Reason != c.Reason))
	}
	if bad {
		return corev1.EventTypeWarning, ok
	}
	return corev1.EventTypeNormal, ok
}
