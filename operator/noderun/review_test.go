package noderun

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/operator/nodeagent"
	"github.com/gleaner-dev/gleaner/operator/noderetention"
	"github.com/gleaner-dev/gleaner/operator/retain"
)

// asked returns a reviewer of node a and its requests. Each request gets the answer after a delay; an empty answer is no answer.
func asked(t *testing.T, answer v1alpha1.ImageRemovalRequestStatus, after time.Duration) (*reviewer, *[]v1alpha1.ImageRemovalRequest) {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(v1alpha1.AddToScheme(scheme), corev1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	var requests []v1alpha1.ImageRemovalRequest
	api := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&v1alpha1.ImageRemovalRequest{}).WithInterceptorFuncs(interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.CreateOption) error {
			err := c.Create(ctx, o, options...)
			q := o.DeepCopyObject().(*v1alpha1.ImageRemovalRequest)
			requests = append(requests, *q)
			go func() {
				time.Sleep(after)
				q.Status = answer
				if err := c.Status().Update(t.Context(), q); client.IgnoreNotFound(err) != nil {
					t.Error(err)
				}
			}()
			return err
		},
	}).Build()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "u"}}
	return &reviewer{client: api, node: func() *corev1.Node { return node }}, &requests
}

func question() nodeagent.Review {
	return nodeagent.Review{
		Image:  noderetention.Image{ID: "sha256:a", Names: []string{"docker.io/library/web:1"}, Size: 7},
		Labels: map[string]string{"team": "shop"}, FirstSeen: time.Unix(1000, 0), Policy: "full", Limit: retain.Pressure,
	}
}

func left(t *testing.T, r *reviewer) int {
	t.Helper()
	var list v1alpha1.ImageRemovalRequestList
	if err := r.client.List(t.Context(), &list); err != nil {
		t.Fatal(err)
	}
	return len(list.Items)
}

func TestReview_WaitsForTheAnswer_AndDeletesTheRequest(t *testing.T) {
	for name, test := range map[string]struct {
		answer v1alpha1.ImageRemovalRequestStatus
		want   nodeagent.Answer
	}{
		"it can be removed": {v1alpha1.ImageRemovalRequestStatus{Decision: v1alpha1.ImageRemove}, nodeagent.Answer{Remove: true, By: "the operator"}},
		"it stays": {
			v1alpha1.ImageRemovalRequestStatus{Decision: v1alpha1.ImageKeep, DecidedBy: "ClusterGCPolicy base", Reason: "a base image", After: "1h"},
			nodeagent.Answer{By: "ClusterGCPolicy base", Reason: "a base image", After: time.Hour},
		},
		"the answer is not known": {v1alpha1.ImageRemovalRequestStatus{Decision: "Perhaps"}, nodeagent.Answer{By: "the operator"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, requests := asked(t, test.answer, 3*time.Second)
				got, err := r.review(t.Context(), question())
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(test.want, got); diff != "" {
					t.Errorf("answer (-want +got):\n%s", diff)
				}
				if n := left(t, r); n != 0 {
					t.Errorf("%d requests are left", n)
				}
				want := v1alpha1.ImageRemovalRequestSpec{NodeName: "a", Policy: "full", Limit: "Usage", Image: v1alpha1.NodeImage{
					ID: "sha256:a", Names: []string{"docker.io/library/web:1"}, Labels: map[string]v1alpha1.ImageLabel{"team": "shop"}, SizeBytes: 7, FirstSeen: metav1.NewTime(time.Unix(1000, 0)),
				}}
				if diff := cmp.Diff(want, (*requests)[0].Spec); diff != "" {
					t.Errorf("request (-want +got):\n%s", diff)
				}
			})
		})
	}
}

func TestReview_WithoutAnAnswer_EndsInTime_AndDeletesTheRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := asked(t, v1alpha1.ImageRemovalRequestStatus{}, 0)
		ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
		defer cancel()
		began := time.Now()
		if answer, err := r.review(ctx, question()); err == nil || answer.Remove || time.Since(began) != 15*time.Second {
			t.Errorf("answer %+v, %v after %s", answer, err, time.Since(began))
		}
		if n := left(t, r); n != 0 {
			t.Errorf("%d requests are left", n)
		}
	})
}

func TestRequest_LeavesOutWhatIsTooLong(t *testing.T) {
	q := question()
	q.Image.Names, q.Labels = nil, map[string]string{"long": strings.Repeat("x", 2000), "short": "x", "invalid": "\xff"}
	for range 100 {
		q.Image.Names = append(q.Image.Names, "registry.example.com/a:1", strings.Repeat("n", 1000))
	}
	for i := range 100 {
		q.Labels[strings.Repeat("k", i+1)] = "v"
	}
	image := requestOf(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: strings.Repeat("a", 253)}}, q).Spec.Image
	if len(image.Names) != v1alpha1.MaxImageNames || len(image.Labels) != v1alpha1.MaxImageLabels || image.Labels["long"] != "" || image.Labels["invalid"] != "" {
		t.Errorf("%d names, labels %v", len(image.Names), image.Labels)
	}
}
