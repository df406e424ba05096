package noderun

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/operator/nodeagent"
	"github.com/gleaner-dev/gleaner/operator/noderetention"
	"github.com/gleaner-dev/gleaner/operator/retain"
)

// mirrorAnnotation is the annotation with which the kubelet shows a static Pod; its value is the UID that the Pod has for the kubelet.
const mirrorAnnotation = "kubernetes.io/config.mirror"

const (
	nodeField = "spec.nodeName" // of Pods, for selectors
	pageSize  = 500
	needsTime = 15 * time.Second // for a list of the node's Pods
)

// source reads what an agent needs to know from the API server.
type source struct {
	name   string
	cached client.Reader // of policies, of the node, and of its Pods
	live   client.Reader
	synced atomic.Bool // the cache has been filled
}

// node returns the Node of the agent; nil if it is not known.
func (s *source) node() *corev1.Node {
	if !s.synced.Load() {
		return nil
	}
	n := &corev1.Node{}
	if err := s.cached.Get(context.Background(), client.ObjectKey{Name: s.name}, n); err != nil {
		return nil
	}
	return n
}

// policies returns the policies that select the node; false if they are not known.
func (s *source) policies() ([]noderetention.Policy, bool) {
	node := s.node()
	if node == nil {
		return nil, false
	}
	var list v1alpha1.NodeRetentionPolicyList
	if err := s.cached.List(context.Background(), &list); err != nil {
		return nil, false
	}
	policies := []noderetention.Policy{}
	for at := range list.Items {
		if p := &list.Items[at]; selects(p, node) {
			policies = append(policies, compile(p))
		}
	}
	slices.SortFunc(policies, func(a, b noderetention.Policy) int { return cmp.Compare(a.Name, b.Name) }) // caches have no order
	return policies, true
}

// selects reports whether a policy selects a node. A policy with an invalid selector, which the API server rejects, selects none.
func selects(p *v1alpha1.NodeRetentionPolicy, node *corev1.Node) bool {
	if p.Spec.NodeSelector == nil {
		return true
	}
	selector, err := metav1.LabelSelectorAsSelector(p.Spec.NodeSelector)
	return err == nil && selector.Matches(labels.Set(node.Labels))
}

// compile returns the policy as it is evaluated. If a duration is invalid, which the API server rejects, the policy keeps images by
// name and removes nothing.
func compile(p *v1alpha1.NodeRetentionPolicy) noderetention.Policy {
	c := noderetention.Policy{Name: p.Name, UID: string(p.UID), Generation: p.Generation, Enforce: p.Spec.Mode == v1alpha1.ModeEnforce}
	if i := p.Spec.Images; i != nil {
		c.Images = &noderetention.ImageLimits{Keep: i.Keep, EvaluatePolicies: i.EvaluatePolicies}
		least, errLeast := duration(i.MinAge)
		most, errMost := duration(i.MaxAge)
		if errors.Join(errLeast, errMost) == nil {
			c.Images.MinAge, c.Images.MaxAge = least, most
			if i.HighThresholdPercent != nil && i.LowThresholdPercent != nil {
				c.Images.Usage = &retain.Watermarks{High: int(*i.HighThresholdPercent), Low: int(*i.LowThresholdPercent)}
			}
		}
	}
	if l := p.Spec.Containers; l != nil {
		if least, err := duration(l.MinAge); err == nil {
			c.Containers = &noderetention.ContainerLimits{MinAge: least, MaxPerContainer: number(l.MaxPerPodContainer), MaxTotal: number(l.MaxContainers)}
		}
	}
	return c
}

// duration returns 0 for nil.
func duration(d *v1alpha1.RetentionDuration) (time.Duration, error) {
	if d == nil {
		return 0, nil
	}
	return time.ParseDuration(string(*d))
}

func number(n *int32) *int {
	if n == nil {
		return nil
	}
	i := int(*n)
	return &i
}

// needs returns what the Pods of the node need. If live is set, the API server is asked.
func (s *source) needs(ctx context.Context, live bool) (nodeagent.Needs, error) {
	if !s.synced.Load() {
		return nodeagent.Needs{}, errors.New("the Pods of the node have not been read yet")
	}
	if !live {
		var list corev1.PodList
		if err := s.cached.List(ctx, &list); err != nil {
			return nodeagent.Needs{}, fmt.Errorf("list Pods of the node: %w", err)
		}
		return needsOf(list.Items), nil
	}
	ctx, cancel := context.WithTimeout(ctx, needsTime)
	defer cancel()
	var all []corev1.Pod
	for token := ""; ; {
		var list corev1.PodList
		if err := s.live.List(ctx, &list, client.MatchingFields{nodeField: s.name}, client.Limit(pageSize), client.Continue(token)); err != nil {
			return nodeagent.Needs{}, fmt.Errorf("list Pods of the node: %w", err)
		}
		all = append(all, list.Items...)
		if token = list.Continue; token == "" {
			return needsOf(all), nil
		}
	}
}

func needsOf(pods []corev1.Pod) (n nodeagent.Needs) {
	for at := range pods {
		add(&n, &pods[at])
	}
	return n
}

// add adds what a Pod needs that has not ended.
func add(n *nodeagent.Needs, p *corev1.Pod) {
	if p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
		return
	}
	n.Live = append(n.Live, string(p.UID))
	if uid := p.Annotations[mirrorAnnotation]; uid != "" {
		n.Live = append(n.Live, uid)
	}
	for _, list := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for _, c := range list {
			n.Images = append(n.Images, c.Image)
		}
	}
	for _, c := range p.Spec.EphemeralContainers {
		n.Images = append(n.Images, c.Image)
	}
	for _, v := range p.Spec.Volumes {
		if v.Image != nil {
			n.Images = append(n.Images, v.Image.Reference)
		}
	}
}

// trim removes from a Pod what the agent does not need, before it is cached.
func trim(o any) (any, error) {
	p, ok := o.(*corev1.Pod)
	if !ok {
		return o, nil
	}
	t := &corev1.Pod{Status: corev1.PodStatus{Phase: p.Status.Phase}}
	t.Name, t.Namespace, t.UID, t.ResourceVersion = p.Name, p.Namespace, p.UID, p.ResourceVersion
	if uid, ok := p.Annotations[mirrorAnnotation]; ok {
		t.Annotations = map[string]string{mirrorAnnotation: uid}
	}
	t.Spec.NodeName = p.Spec.NodeName
	named := func(list []corev1.Container) (images []corev1.Container) {
		for _, c := range list {
			images = append(images, corev1.Container{Name: c.Name, Image: c.Image})
		}
		return images
	}
	t.Spec.InitContainers, t.Spec.Containers = named(p.Spec.InitContainers), named(p.Spec.Containers)
	for _, c := range p.Spec.EphemeralContainers {
		t.Spec.EphemeralContainers = append(t.Spec.EphemeralContainers, corev1.EphemeralContainer{
			EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: c.Name, Image: c.Image},
		})
	}
	for _, v := range p.Spec.Volumes {
		if v.Image != nil {
			t.Spec.Volumes = append(t.Spec.Volumes, corev1.Volume{Name: v.Name, VolumeSource: corev1.VolumeSource{Image: v.Image}})
		}
	}
	return t, nil
}

// underPressure reports whether a Node says that its disk is full.
func underPressure(n *corev1.Node) bool {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeDiskPressure {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
