package doctor

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gleaner-dev/gleaner/cmd/gleaner/ask/replicas"
	"github.com/gleaner-dev/gleaner/operator/debug"
)

// Problems make doctor exit with 1. An operator of which nothing is known to work is one.
func TestOperator_IsAProblemIfNoReplicaWorks(t *testing.T) {
	pod := func(ready corev1.ConditionStatus) corev1.Pod {
		p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "gleaner-system", Name: "gleaner-a"}}
		if ready != "" {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}
		}
		return p
	}
	unreachable := replicas.Health{Replica: "a", Err: errors.New("its pod is Pending")}
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
			p := &patient{pods: c.pods, health: c.health}
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
