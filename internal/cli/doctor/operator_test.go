package doctor

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gleaner-dev/gleaner/internal/cli/replicas"
	"github.com/gleaner-dev/gleaner/operator/debug"
)

// Problems make doctor exit with 1. An operator of which nothing is known to work is one.
func TestOperator_ProblemIfNoReplicaWorks(t *testing.T) {
	pod := func(ready corev1.ConditionStatus) corev1.Pod {
		p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "gleaner-system", Name: "gleaner-a"}}
		if ready != "" {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}
		}
		return p
	}
	unreachable := replicas.Health{Replica: "a", Err: errors.New("pod is Pending")}
	leads := replicas.Health{Replica: "b", Status: debug.Status{Leading: true, Collecting: true}}
	follows := replicas.Health{Replica: "c"}
	for claim, c := range map[string]struct {
		pods     []corev1.Pod
		health   []replicas.Health
		endpoint string
		want     bool // a problem
	}{
		"none is there":                                      {nil, nil, "", true},
		"the only one is Pending":                            {[]corev1.Pod{pod("")}, []replicas.Health{unreachable}, "", true},
		"the only one is not ready":                          {[]corev1.Pod{pod(corev1.ConditionFalse)}, []replicas.Health{unreachable}, "", true},
		"one stands by, and the other is Pending":            {[]corev1.Pod{pod("")}, []replicas.Health{follows, unreachable}, "", true},
		"all stand by":                                       {[]corev1.Pod{pod(corev1.ConditionTrue)}, []replicas.Health{follows}, "", true},
		"nothing answers at the endpoint":                    {nil, []replicas.Health{unreachable}, "https://127.0.0.1:1", true},
		"it is ready, and could not be asked":                {[]corev1.Pod{pod(corev1.ConditionTrue)}, []replicas.Health{unreachable}, "", false},
		"one leads, and the other is Pending":                {[]corev1.Pod{pod("")}, []replicas.Health{leads, unreachable}, "", false},
		"the one at the endpoint stands by, others may lead": {nil, []replicas.Health{follows}, "https://127.0.0.1:1", false},
	} {
		t.Run(claim, func(t *testing.T) {
			p := &checker{pods: c.pods, health: c.health}
			p.Operator.Endpoint = c.endpoint
			problems := 0
			for _, f := range p.operator(t.Context()) {
				if f.Severity == Problem {
					problems++
				}
			}
			if (problems != 0) != c.want {
				t.Errorf("%d problems: want some: %t", problems, c.want)
			}
		})
	}
}

func TestOperator_UnknownIfPodsAreForbidden(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", errors.New("no"))
	p := &checker{podsErr: fmt.Errorf("list the operator's pods: %w", forbidden)}
	found := p.operator(t.Context())
	if len(found) != 1 || found[0].Severity != Unknown || !strings.HasPrefix(found[0].Message, "not allowed to list pods") || found[0].Advice == "" {
		t.Errorf("found %+v", found)
	}
	if !p.operatorUnknown {
		t.Error("it is taken to be known whether the operator works")
	}
	p = &checker{podsErr: forbidden, health: []replicas.Health{{Replica: "b", Status: debug.Status{Leading: true, Collecting: true}}}}
	if p.operator(t.Context()); p.operatorUnknown {
		t.Error("a replica that works, and was named with --endpoint, does not count")
	}
}
