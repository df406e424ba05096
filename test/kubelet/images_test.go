// Package kubelet compares what Gleaner's retention removes with what the collectors of Kubernetes remove.
package kubelet

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.opentelemetry.io/otel/trace/noop"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	"k8s.io/kubernetes/pkg/kubelet/container"
	containertest "k8s.io/kubernetes/pkg/kubelet/container/testing"
	"k8s.io/kubernetes/pkg/kubelet/images"

	"github.com/gleaner-dev/gleaner/operator/retain"
)

// node is a container runtime in memory, with the usage of its file system.
type node struct {
	*containertest.FakeRuntime
	usage   retain.Usage
	removed []string // in their order
}

// RemoveImage implements container.Runtime.
func (n *node) RemoveImage(ctx context.Context, image container.ImageSpec) error {
	n.removed = append(n.removed, image.Image)
	return n.FakeRuntime.RemoveImage(ctx, image)
}

// ImageFsStats implements images.StatsProvider.
func (n *node) ImageFsStats(context.Context) (*stats.FsStats, *stats.FsStats, error) {
	capacity, available := uint64(n.usage.Capacity), uint64(n.usage.Available) //nolint:gosec // not negative
	s := &stats.FsStats{CapacityBytes: &capacity, AvailableBytes: &available}
	return s, s, nil
}

// use has one Pod use some images.
func (n *node) use(ids ...string) {
	pod := &container.Pod{Name: "p", Namespace: "shop"}
	for _, id := range ids {
		pod.Containers = append(pod.Containers, &container.Container{Name: "c-" + id, ImageID: id})
	}
	n.AllPodList = []*containertest.FakePod{{Pod: pod}}
}

// state is a random history of images on a node. Each round adds an image, and changes which are in use.
type state struct {
	images []container.Image
	uses   [][]string // by round
	policy images.ImageGCPolicy
	usage  retain.Usage
	aged   bool // all images are older than the maximum age, and there is enough space
}

func randomState(r *rand.Rand) state {
	var s state
	for round := range 1 + r.IntN(9) {
		s.images = append(s.images, container.Image{ID: fmt.Sprintf("i%d", round), Size: 1_000_000 * (1 + r.Int64N(60)), Pinned: r.IntN(6) == 0})
		var used []string
		for _, i := range s.images {
			if r.IntN(4) == 0 {
				used = append(used, i.ID)
			}
		}
		s.uses = append(s.uses, used)
	}
	low := r.IntN(95)
	s.policy = images.ImageGCPolicy{HighThresholdPercent: low + 1 + r.IntN(100-low), LowThresholdPercent: low}
	s.usage = retain.Usage{Capacity: 200_000_000 + r.Int64N(200_000_000)}
	s.usage.Available = r.Int64N(s.usage.Capacity)
	if r.IntN(5) == 0 {
		s.policy.MinAge = time.Hour
	}
	switch r.IntN(3) {
	case 0:
		s.policy.MaxAge, s.policy.MinAge, s.aged = time.Nanosecond, 0, true
		s.usage.Available = s.usage.Capacity
	case 1:
		s.policy.MaxAge = time.Hour
	}
	return s
}

// byKubelet returns what the kubelet removes. Before the last round there is enough space, so that it only looks.
func (s state) byKubelet(t *testing.T) []string {
	t.Helper()
	began := time.Now().Add(-time.Millisecond)
	n := &node{FakeRuntime: &containertest.FakeRuntime{}}
	var manager images.ImageGCManager
	for round := range s.images {
		policy := s.policy
		n.usage = s.usage
		if round < len(s.images)-1 {
			n.usage.Available = n.usage.Capacity
		}
		n.ImageList = append(n.ImageList, s.images[round])
		n.use(s.uses[round]...)
		if manager == nil {
			var err error
			if manager, err = images.NewImageGCManager(n, n, nil, record.NewFakeRecorder(100), &corev1.ObjectReference{}, policy, noop.NewTracerProvider()); err != nil {
				t.Fatal(err)
			}
		}
		beganGC := began
		if round < len(s.images)-1 {
			beganGC = time.Now().Add(time.Hour) // it doesn't remove by age yet
		}
		_ = manager.GarbageCollect(klog.NewContext(t.Context(), klog.Logger{}), beganGC) // that too little is freed is an error
	}
	return n.removed
}

// removals returns the IDs of what Gleaner removes, in their order.
func removals(in retain.Input) (ids []string) {
	for _, d := range retain.Evaluate(in).Removals {
		ids = append(ids, in.Candidates[d.Candidate].ID)
	}
	return ids
}

// byGleaner returns what Gleaner removes. A round takes a minute.
func (s state) byGleaner() []string {
	start := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	at := func(round int) time.Time { return start.Add(time.Duration(round) * time.Minute) }
	last := len(s.images) - 1
	in := retain.Input{Now: at(last), Since: start.Add(-time.Millisecond), Usage: &s.usage, Rule: retain.Rule{
		MinAge: s.policy.MinAge, MinAgeFrom: retain.ByFirstSeen, MaxUnused: s.policy.MaxAge,
		Watermarks: &retain.Watermarks{High: s.policy.HighThresholdPercent, Low: s.policy.LowThresholdPercent},
	}}
	for n, i := range s.images {
		c := retain.Candidate{ID: i.ID, Use: retain.Unused, Pinned: i.Pinned, FirstSeen: at(n), Size: i.Size}
		for round, used := range s.uses {
			for _, id := range used {
				if id == i.ID {
					c.LastUsed = at(round)
					if round == last {
						c.Use = retain.Used
					}
				}
			}
		}
		in.Candidates = append(in.Candidates, c)
	}
	return removals(in)
}

// isNew reports whether an image was seen in the last round only, and not in use. For the kubelet, it is unused forever; for
// Gleaner, since it was seen, which is intended.
func (s state) isNew(id string) bool {
	last := len(s.images) - 1
	return s.images[last].ID == id && !slices.Contains(s.uses[last], id)
}

func TestP02_P05_P06_P08_ImagesAreRemovedAsByTheKubelet(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6)) //nolint:gosec // reproducible
	byAge, byUsage := 0, 0
	for n := range 1000 {
		s := randomState(r)
		want := s.byKubelet(t)
		if s.aged {
			want = slices.DeleteFunc(want, s.isNew)
			byAge += len(want)
		} else {
			byUsage += len(want)
		}
		if diff := cmp.Diff(want, s.byGleaner(), cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("state %d: removals (-kubelet +Gleaner):\n%s\n%+v", n, diff, s)
		}
	}
	if byAge < 500 || byUsage < 300 {
		t.Errorf("%d images were removed by age, %d by usage", byAge, byUsage)
	}
}
