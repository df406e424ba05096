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

	"github.com/gleaner-dev/gleaner/internal/cli/permissions"
	"github.com/gleaner-dev/gleaner/internal/cli/replicas"
)

// operator checks that the operator is running and working.
func (p *checker) operator(context.Context) []Finding {
	var found []Finding
	switch {
	case p.podsErr != nil && len(p.health) == 0:
		p.operatorUnknown = true
		if apierrors.IsForbidden(p.podsErr) {
			return []Finding{unknown("use an account that is allowed to list pods in the operator's namespace, and set --operator-namespace; or set --endpoint",
				"not allowed to list pods, so the status of the operator is unknown: %v", p.podsErr)}
		}
		return []Finding{unknown("set --endpoint", "pods can't be listed, so the status of the operator is unknown: %v", p.podsErr)}
	case p.queryErr != nil:
		found = append(found, unknown("", "the operator can't be queried: %v", p.queryErr))
	case len(p.health) == 0:
		return []Finding{problem("install it (docs/install.md), or set --endpoint", "no replica of the operator is running: nothing is collected, and objects with a hold are not deleted")}
	}
	for i := range p.pods {
		found = append(found, podReady(&p.pods[i])...)
	}
	return append(found, p.replicas()...)
}

func podReady(pod *corev1.Pod) []Finding {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady && c.Status != corev1.ConditionTrue {
			return []Finding{problem("see its kubectl describe and kubectl logs", "pod %s/%s is not ready: %s", pod.Namespace, pod.Name, c.Message)}
		}
	}
	return nil
}

// replicas reports the health of the replicas.
func (p *checker) replicas() []Finding {
	var found []Finding
	leading, unreachable := 0, 0
	for _, h := range p.health {
		if h.Err != nil {
			unreachable++
			found = append(found, unknown("", "%s could not be queried: %v", h.Replica, h.Err))
			continue
		}
		s := h.Status
		switch {
		case s.Collecting:
			found = append(found, Finding{Severity: OK, Message: fmt.Sprintf("%s: %s", h.Replica, s.Message)})
		case s.Leading:
			found = append(found, problem("", "%s is leading but not collecting: %s", h.Replica, s.Message))
		default:
			found = append(found, Finding{Severity: OK, Message: h.Replica + " is on standby"})
		}
		if s.Leading || s.Collecting { // older versions report only Collecting
			leading++
		}
		for _, pair := range s.EquivalentResources {
			found = append(found, warning("", "%s: %s", h.Replica, pair))
		}
		if h.Unlisted != "" {
			found = append(found, problem("fix the reason: objects of these types are not collected, and owners of these types are never considered absent",
				"%s has types that are %s", h.Replica, strings.Join(strings.Fields(h.Unlisted), " ")))
		}
		if s.Version != "" && s.Version != p.Version {
			found = append(found, warning("use the same version of both", "%s has version %s, but this command has version %s", h.Replica, s.Version, p.Version))
		}
	}
	switch {
	case leading != 0:
	case unreachable == 0 && p.Operator.Endpoint == "":
		found = append(found, problem("see the operator's log", "no replica is leading: nothing is collected"))
	case unreachable != 0 && !slices.ContainsFunc(p.pods, ready):
		found = append(found, problem("see kubectl describe and kubectl logs of the operator's pods; with --endpoint, check that it is the operator's address",
			"no replica of the operator is known to work: nothing may be collected, and objects with a hold are not deleted"))
	}
	return found
}

// ready reports whether a pod is ready: even if it could not be queried, it may work.
func ready(pod corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// leaseName is the name of the leader election lease.
const leaseName = "gleaner.dev"

// lease checks that exactly one installation holds a lease.
func (p *checker) lease(ctx context.Context) []Finding {
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
			found = append(found, warning("check that the operator is running", "lease %s/%s has no holder", l.Namespace, l.Name))
		case time.Since(l.Spec.RenewTime.Time) > life+maxClockSkew:
			found = append(found, problem("check that the operator is running, and its log", "lease %s/%s has expired; it was last renewed by %s at %s",
				l.Namespace, l.Name, holder, l.Spec.RenewTime.UTC().Format(time.RFC3339)))
		default:
			held = append(held, l.Namespace+"/"+l.Name+" by "+holder)
		}
	}
	switch {
	case len(held) > 1:
		found = append(found, problem("remove one of the installations: they don't coordinate", "there are %d installations of Gleaner: %s", len(held), strings.Join(held, ", ")))
	case len(held) == 1:
		found = append(found, ok("held: %s", held[0])...)
	case len(list.Items) == 0 && slices.ContainsFunc(p.health, func(h replicas.Health) bool { return h.Err == nil }):
		found = append(found, warning("with more than one replica, enable --leader-elect", "lease %s not found: the operator is running without leader election", leaseName))
	case len(list.Items) == 0:
		found = append(found, warning("check that the operator is running", "lease %s not found", leaseName))
	}
	return found
}

// permissions checks the permissions of the operator's service account.
func (p *checker) permissions(ctx context.Context) []Finding {
	if len(p.pods) == 0 {
		return []Finding{unknown("gleaner rbac --check --service-account NAMESPACE/NAME", "the operator has no pods from which to read its service account")}
	}
	missing, err := permissions.Check(ctx, p.kube, p.setup, permissions.Required(p.setup, p.resources))
	switch {
	case apierrors.IsForbidden(err):
		return []Finding{unknown("use an account that is allowed to create subjectaccessreviews", "%v", err)}
	case err != nil:
		return []Finding{unknown("", "%v", err)}
	}
	var found []Finding
	for _, m := range missing {
		found = append(found, problem("gleaner rbac | kubectl apply -f -", "the service account %s/%s is not allowed to %s. %s", p.setup.Namespace, p.setup.ServiceAccount, m, m.Reason))
	}
	return findingsOrOK(found, "the service account %s/%s has all required permissions", p.setup.Namespace, p.setup.ServiceAccount)
}
