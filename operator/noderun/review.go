package noderun

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/operator/nodeagent"
)

// The times of a request. It is read until it has been answered, less and less often.
const (
	firstLook     = 50 * time.Millisecond
	longestLook   = 2 * time.Second
	deleteTimeout = 5 * time.Second
)

// reviewer asks the operator whether images can be removed.
type reviewer struct {
	client client.Client // reads live
	node   func() *corev1.Node
}

// review creates an ImageRemovalRequest, waits for its answer, and deletes it. If it isn't deleted, the operator does it later, or the
// API server when the Node is gone.
func (r *reviewer) review(ctx context.Context, q nodeagent.Review) (answer nodeagent.Answer, err error) {
	node := r.node()
	if node == nil {
		return answer, errors.New("the node is not known")
	}
	request := requestOf(node, q)
	if err := r.client.Create(ctx, request); err != nil {
		return answer, fmt.Errorf("create ImageRemovalRequest: %w", err)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), deleteTimeout)
		defer cancel()
		if gone := client.IgnoreNotFound(r.client.Delete(ctx, request)); gone != nil {
			err = errors.Join(err, fmt.Errorf("delete ImageRemovalRequest: %w", gone))
		}
	}()
	key := client.ObjectKeyFromObject(request)
	backoff := wait.Backoff{Duration: firstLook, Factor: 2, Cap: longestLook, Steps: 1000}
	for request.Status.Decision == "" {
		select {
		case <-ctx.Done():
			return answer, fmt.Errorf("the operator has not answered ImageRemovalRequest %s: %w", request.Name, ctx.Err())
		case <-time.After(min(backoff.Step(), longestLook)):
		}
		if err := r.client.Get(ctx, key, request); err != nil {
			return answer, fmt.Errorf("read ImageRemovalRequest: %w", err)
		}
	}
	after, _ := time.ParseDuration(string(request.Status.After)) // 0: the agent has a minimum
	return nodeagent.Answer{
		Remove: request.Status.Decision == v1alpha1.ImageRemove, By: cmp.Or(request.Status.DecidedBy, "the operator"), Reason: request.Status.Reason, After: after,
	}, nil
}

// requestOf returns a request for an image. What is too long for it is left out.
func requestOf(node *corev1.Node, q nodeagent.Review) *v1alpha1.ImageRemovalRequest {
	image := v1alpha1.NodeImage{ID: q.Image.ID, SizeBytes: max(q.Image.Size, 0), FirstSeen: metav1.NewTime(q.FirstSeen)}
	if !q.LastUsed.IsZero() {
		at := metav1.NewTime(q.LastUsed)
		image.LastUsed = &at
	}
	for _, name := range q.Image.Names {
		if len(name) <= v1alpha1.MaxImageName && len(image.Names) < v1alpha1.MaxImageNames {
			image.Names = append(image.Names, name)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(q.Labels)) {
		if value := q.Labels[key]; len(key)+len(value) <= v1alpha1.MaxImageLabel && utf8.ValidString(key+value) && len(image.Labels) < v1alpha1.MaxImageLabels {
			if image.Labels == nil {
				image.Labels = map[string]v1alpha1.ImageLabel{}
			}
			image.Labels[key] = v1alpha1.ImageLabel(value)
		}
	}
	const longest = 200 // of what the API server adds a suffix to
	return &v1alpha1.ImageRemovalRequest{
		ObjectMeta: metav1.ObjectMeta{
			GenerateName:    strings.TrimRight(node.Name[:min(len(node.Name), longest)], ".-") + "-",
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}}, // it goes with the node
		},
		Spec: v1alpha1.ImageRemovalRequestSpec{NodeName: node.Name, Image: image, Policy: q.Policy, Limit: string(q.Limit)},
	}
}
