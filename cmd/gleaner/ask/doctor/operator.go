package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/gleaner-dev/gleaner/cmd/gleaner/ask/replicas"
	"github.com/gleaner-dev/gleaner/cmd/gleaner/ask/rights"
)

// operator looks whether there is one, and whether it works.
func (p *patient) operator(context.Context) []Finding {
	var found []Finding
	switch {
	case p.podsErr != nil && len(p.health) == 0:
		p.blind = true
		if apierrors.IsForbidden(p.podsErr) {
			return []Finding{unknown("ask with an account that may list pods in the operator's namespace, and name that with --operator-namespace; or name a replica with --endpoint",
				"may not list pods, so whether the operator works is not known: %v", p.podsErr)}
		}
		return []Finding{unknown("name a replica with --endpoint", "pods can't be listed, so whether the operator works is not known: %v", p.podsErr)}
	case p.askErr != nil:
		found = append(found, unknown("", "the operator can't be asked: %v", p.askErr))
	case len(p.health) == 0:
		return []Finding{problem("install it (docs/install.md), or name a replica with --endpoint", "no replica of the operator is running: nothing is decided, and objects with a hold stay")}
	}
	for i := range p.pods {
		found = append(found, podIs(&p.pods[i])...)
	}
	return append(found, p.replicas()...)
}

func podIs(pod *corev1.Pod) []Finding {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady && c.Status != corev1.ConditionTrue {
			return []Finding{problem("see kubectl describe and kubectl logs of it", "pod %s/%s is not ready: %s", pod.Namespace, pod.Name, c.Message)}
		}
	}
	return nil
}

// replicas says what the replicas say of themselves.
func (p *patient) replicas() []Finding {
	var found []Finding
	leading, unasked := 0, 0
	for _, h := range p.health {
		if h.Err != nil {
			unasked++
			found = append(found, unknown("", "%s could not be asked: %v", h.Replica, h.Err))
			continue
		}
		s := h.Status
		switch {
		case s.Collecting:
			found = append(found, Finding{Severity: OK, Message: fmt.Sprintf("%s works: %s", h.Replica, s.Message)})
		case s.Leading:
			found = append(found, problem("", "%s leads, and does not collect: %s", h.Replica, s.Message))
		default:
			found = append(found, Finding{Severity: OK, Message: h.Replica + " stands by"})
		}
		if s.Leading || s.Collecting { // an older one says only the latter
			leading++
		}
		for _, pair := range s.Twins {
			found = append(found, warning("", "%s: %s", h.Replica, pair))
		}
		if h.Unlisted != "" {
			found = append(found, problem("see to the reason: objects of these types are not collected, and no owner among them is taken to be absent",
				"%s has types that are %s", h.Replica, strings.Join(strings.Fields(h.Unlisted), " ")))
		}
		if s.Version != "" && s.Version != p.Version {
			found = append(found, warning("use the same version of both", "%s is of version %s, and this command of %s", h.Replica, s.Version, p.Version))
		}
	}
	switch {
	case leading != 0:
	case unasked == 0 && p.Operator.Endpoint == "":
		found = append(found, problem("see the operator's log", "no replica leads: nothing is decided"))
	case unasked != 0 && !slices.ContainsFunc(p.pods, ready):
		found = append(found, problem("see kubectl describe and kubectl logs of the operator's pods; with --endpoint, that it is the operator's address",
			"no replica of the operator is known to work: nothing is decided, and objects with a hold stay"))
	}
	return found
}

// ready reports whether a pod says that it works. One that could not be asked may.
func ready(pod corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// leaseName is what replicas hold while they work.
const leaseName = "gleaner.dev"

// lease looks who works, and whether it is one.
func (p *patient) lease(ctx context.Context) []Finding {
	list, err := p.kube.CoordinationV1().Leases("").List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + leaseName})
	if err != nil {
		return []Finding{unknown("", "leases can't be listed: %v", err)}
	}
	var held []string
	var found []Finding
	for _, l := range list.Items {
		holder, life := ptr.Deref(l.Spec.HolderIdentity, ""), time.Duration(ptr.Deref(l.Spec.LeaseDurationSeconds, 0))*time.Second
		switch {
		case holder == "" || l.Spec.RenewTime == nil:
			found = append(found, warning("see that the operator runs", "lease %s/%s is held by nobody", l.Namespace, l.Name))
		case time.Since(l.Spec.RenewTime.Time) > life+apart:
			found = append(found, problem("see that the operator runs, and its log", "lease %s/%s was renewed last by %s, at %s",
				l.Namespace, l.Name, holder, l.Spec.RenewTime.UTC().Format(time.RFC3339)))
		default:
			held = append(held, l.Namespace+"/"+l.Name+" by "+holder)
		}
	}
	switch {
	case len(held) > 1:
		found = append(found, problem("remove one of the installations: two collectors don't know of each other", "there are %d installations of Gleaner: %s", len(held), strings.Join(held, ", ")))
	case len(held) == 1:
		found = append(found, ok("held: %s", held[0])...)
	case len(list.Items) == 0 && slices.ContainsFunc(p.health, func(h replicas.Health) bool { return h.Err == nil }):
		found = append(found, warning("with more than one replica, leave --leader-elect on", "there is no lease %s: the operator runs without leader election", leaseName))
	case len(list.Items) == 0:
		found = append(found, warning("see that the operator runs", "there is no lease %s", leaseName))
	}
	return found
}

// rights asks whether the operator's service account has what it needs.
func (p *patient) rights(ctx context.Context) []Finding {
	if len(p.pods) == 0 {
		return []Finding{unknown("gleaner rbac --check --service-account NAMESPACE/NAME", "there is no pod of the operator to tell its service account")}
	}
	missing, err := rights.Check(ctx, p.kube, p.setup, rights.Needed(p.setup, p.book))
	switch {
	case apierrors.IsForbidden(err):
		return []Finding{unknown("ask as somebody who may create subjectaccessreviews", "%v", err)}
	case err != nil:
		return []Finding{unknown("", "%v", err)}
	}
	var found []Finding
	for _, m := range missing {
		found = append(found, problem("gleaner rbac | kubectl apply -f -", "the service account %s/%s may not %s. %s", p.setup.Namespace, p.setup.Account, m, m.Why))
	}
	return orOK(found, "the service account %s/%s has those that it needs", p.setup.Namespace, p.setup.Account)
}
