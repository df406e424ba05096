package kubelet

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	cadvisor "github.com/google/cadvisor/lib/model"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.opentelemetry.io/otel/trace/noop"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/flowcontrol"
	criapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	critest "k8s.io/cri-api/pkg/apis/testing"
	"k8s.io/klog/v2"
	kubelettypes "k8s.io/kubelet/pkg/types"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	"k8s.io/kubernetes/pkg/kubelet/cm"
	"k8s.io/kubernetes/pkg/kubelet/container"
	containertest "k8s.io/kubernetes/pkg/kubelet/container/testing"
	"k8s.io/kubernetes/pkg/kubelet/kuberuntime"
	"k8s.io/kubernetes/pkg/kubelet/logs"
	"k8s.io/kubernetes/pkg/kubelet/prober/results"

	"github.com/gleaner-dev/gleaner/operator/retain"
)

// runtimeService is a container runtime in memory, which records the containers that are removed.
type runtimeService struct {
	*critest.FakeRuntimeService
	removed []string // in their order
}

// RemoveContainer implements the CRI.
func (r *runtimeService) RemoveContainer(ctx context.Context, id string) error {
	r.removed = append(r.removed, id)
	return r.FakeRuntimeService.RemoveContainer(ctx, id)
}

// gonePods are the Pods that have been deleted, for the kubelet.
type gonePods map[types.UID]bool

func (g gonePods) IsPodTerminationRequested(types.UID) bool     { return false }
func (g gonePods) ShouldPodContentBeRemoved(uid types.UID) bool { return g[uid] }
func (g gonePods) ShouldPodRuntimeBeRemoved(uid types.UID) bool { return g[uid] }

// containers is a random state of containers on a node.
type containers struct {
	now     time.Time
	all     []*critest.FakeContainer
	gone    gonePods
	sources bool // the kubelet knows all Pods
	policy  container.GCPolicy
}

func randomContainers(r *rand.Rand, now time.Time) containers {
	s := containers{now: now, gone: gonePods{}, sources: r.IntN(3) > 0}
	ages := r.Perm(120) // minutes, each different
	for pod := range 1 + r.IntN(5) {
		uid := types.UID(fmt.Sprintf("pod-%d", pod))
		s.gone[uid] = r.IntN(4) == 0
		for name := range 1 + r.IntN(2) {
			for attempt := range r.IntN(6) {
				state := []criapi.ContainerState{criapi.ContainerState_CONTAINER_EXITED, criapi.ContainerState_CONTAINER_CREATED, criapi.ContainerState_CONTAINER_RUNNING}[min(r.IntN(5)/2, 2)]
				created := now.Add(-time.Duration(ages[len(s.all)]) * time.Minute)
				s.all = append(s.all, &critest.FakeContainer{ContainerStatus: criapi.ContainerStatus{
					Id: fmt.Sprintf("%s-c%d-%d", uid, name, attempt), Metadata: &criapi.ContainerMetadata{Name: fmt.Sprintf("c%d", name), Attempt: uint32(attempt)}, //nolint:gosec // small
					State: state, CreatedAt: created.UnixNano(), Labels: map[string]string{
						kubelettypes.KubernetesPodUIDLabel: string(uid), kubelettypes.KubernetesPodNameLabel: string(uid),
						kubelettypes.KubernetesPodNamespaceLabel: "shop", kubelettypes.KubernetesContainerNameLabel: fmt.Sprintf("c%d", name),
					},
				}})
			}
		}
	}
	s.policy = container.GCPolicy{MaxPerPodContainer: r.IntN(5) - 1, MaxContainers: r.IntN(12) - 1}
	if r.IntN(2) == 0 {
		s.policy.MinAge = 30*time.Minute + 30*time.Second // no container is about to be as old
	}
	return s
}

func (s containers) byGleaner() []string {
	atLeast0 := func(n int) *int {
		if n < 0 {
			return nil
		}
		return &n
	}
	in := retain.Input{Now: s.now, GroupsRead: s.sources, Rule: retain.Rule{
		MinAge: s.policy.MinAge, MinAgeFrom: retain.ByCreation, Order: retain.ByCreation, Counting: retain.CountRemovable,
		KeepLast: atLeast0(s.policy.MaxPerPodContainer), MaxTotal: atLeast0(s.policy.MaxContainers),
	}}
	for _, c := range s.all {
		pod := c.Labels[kubelettypes.KubernetesPodUIDLabel]
		use := retain.Unused
		if c.State == criapi.ContainerState_CONTAINER_RUNNING {
			use = retain.Used
		}
		in.Candidates = append(in.Candidates, retain.Candidate{
			ID: c.Id, Group: pod + "/" + c.Metadata.Name, Use: use, Created: time.Unix(0, c.CreatedAt), GroupGone: s.gone[types.UID(pod)],
		})
	}
	return removals(in)
}

// byContainer returns the removals of one container of a Pod, in their order. Where it removes all that it may of a
// container, the kubelet's order is that of the runtime's list.
func (s containers) byContainer(removed []string) map[string][]string {
	left, by := map[string]int{}, map[string][]string{}
	name := func(id string) string { return id[:len(id)-2] }
	for _, c := range s.all {
		if c.State != criapi.ContainerState_CONTAINER_RUNNING && c.CreatedAt <= s.now.Add(-s.policy.MinAge).UnixNano() {
			left[name(c.Id)]++
		}
	}
	for _, id := range removed {
		left[name(id)]--
		by[name(id)] = append(by[name(id)], id)
	}
	for container, n := range left {
		if n == 0 {
			slices.Sort(by[container])
		}
	}
	return by
}

func newRuntimeManager(t *testing.T, service *runtimeService, pods gonePods) kuberuntime.KubeGenericRuntime {
	t.Helper()
	manager, _, err := kuberuntime.NewKubeGenericRuntimeManager(klog.NewContext(t.Context(), klog.Logger{}), record.NewFakeRecorder(100),
		results.NewManager(), results.NewManager(), results.NewManager(), t.TempDir(), t.TempDir(), &cadvisor.MachineInfo{}, pods, 100,
		&containertest.FakeOS{}, nil, nil, flowcontrol.NewBackOff(time.Second, time.Minute), true, nil, 0, 0,
		string(kubeletconfig.NeverVerify), nil, "", "", nil, false, metav1.Duration{}, nil, service, critest.NewFakeImageService(),
		cm.NewStubContainerManager(), logs.NewStubContainerLogManager(), nil, false, "", nil, nil, "", nil, noop.NewTracerProvider(), nil, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return manager
}

func TestP01_P02_P09_P17_ContainersAreRemovedAsByTheKubelet(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8)) //nolint:gosec // reproducible
	service, pods := &runtimeService{FakeRuntimeService: critest.NewFakeRuntimeService()}, gonePods{}
	manager := newRuntimeManager(t, service, pods)
	total := 0
	for n := range 1000 {
		s := randomContainers(r, time.Now())
		clear(pods)
		for uid, gone := range s.gone {
			pods[uid] = gone
		}
		service.removed = nil
		service.SetFakeContainers(s.all)
		if err := manager.GarbageCollect(klog.NewContext(t.Context(), klog.Logger{}), s.policy, s.sources, false); err != nil {
			t.Fatal(err)
		}
		got := s.byGleaner()
		if diff := cmp.Diff(s.byContainer(service.removed), s.byContainer(got), cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("state %d: removals (-kubelet +Gleaner):\n%s\n%+v", n, diff, s)
		}
		total += len(got)
	}
	if total < 2000 {
		t.Errorf("%d containers were removed", total)
	}
}
