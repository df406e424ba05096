package node

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/devcluster/node"
)

const clean = `{mode: Enforce, images: {highThresholdPercent: 1, lowThresholdPercent: 0, minAge: 0s}}`

func TestNodeRetention_ImagesInUsePinnedAndKept_AreNeverRemoved(t *testing.T) {
	b := startBox(t)
	all := []string{"a", "b", "c", "kept", "named", "pinned"}
	b.add(all...)
	sandbox, container := b.runPod("web", node.Linger, "1s")
	if err := b.node.Pin(t.Context(), reference("pinned")); err != nil {
		t.Fatal(err)
	}
	b.createPod("names", reference("named"))
	b.apply("keeps", `{mode: Enforce, images: {minAge: 0s, keep: ["gleaner.test/ke*"]}}`)
	b.apply("clean", clean)
	b.expectImages(all, "kept", "named", "pinned")

	status, err := b.runtime.ContainerStatus(t.Context(), container, false)
	if err != nil || status.GetStatus().GetState() != runtimeapi.ContainerState_CONTAINER_RUNNING {
		t.Errorf("the container does not run: %v %v", status.GetStatus().GetState(), err)
	}
	if s, err := b.runtime.PodSandboxStatus(t.Context(), sandbox, false); err != nil || s.GetStatus().GetState() != runtimeapi.PodSandboxState_SANDBOX_READY {
		t.Errorf("the sandbox is not ready: %v", err)
	}
	if i, err := b.images.ImageStatus(t.Context(), &runtimeapi.ImageSpec{Image: node.Linger}, false); err != nil || i.GetImage() == nil {
		t.Errorf("the image of the sandbox is gone: %v", err)
	}
	b.eventually(func() error {
		s, err := b.status()
		switch {
		case err != nil:
			return err
		case s.Images == nil || s.Images.Removed != 3 || s.Images.Total != 4 || s.Images.InUse != 2 || s.Images.FreedBytes < 3*imageSize:
			return fmt.Errorf("images: %+v", s.Images)
		case s.Images.Kept["InUse"] != 1 || s.Images.Kept["Protected"] != 1 || s.Images.Kept["Pinned"] != 2:
			return fmt.Errorf("kept: %v", s.Images.Kept)
		case len(s.RecentRemovals) != 3 || s.RecentRemovals[0].Reason != "Usage" || !strings.HasPrefix(s.RecentRemovals[0].Name, "gleaner.test/"):
			return fmt.Errorf("recent removals: %+v", s.RecentRemovals)
		case s.Reason != v1alpha1.ReasonTooLittleFreed: // 1% is not reached with what stays
			return fmt.Errorf("reason: %q", s.Reason)
		}
		return nil
	})
	b.expectEvent(corev1.EventTypeNormal, "RemovedByRetention", "removed 3 images")
}

func TestNodeRetention_UnderPressure_TheLeastRecentlyUsedGoFirst_AndNoMoreThanNeeded(t *testing.T) {
	b := startBox(t)
	b.apply("limits", `{mode: Enforce, images: {highThresholdPercent: 45, lowThresholdPercent: 35, minAge: 0s}}`)
	first, second := []string{"a", "b", "c", "d"}, []string{"e", "f", "g", "h", "i"}
	b.add(first...) // each takes about five percent, and what it is unpacked from as much
	b.wake()
	b.eventually(func() error { return b.expectTotal(5) })
	b.add(second...)
	b.eventually(func() error {
		s, err := b.status()
		if err == nil && (s.ImageFilesystem == nil || s.ImageFilesystem.UsedPercent >= 45 || s.Images.Removed == 0) {
			err = fmt.Errorf("status: %+v %+v", s.ImageFilesystem, s.Images)
		}
		return err
	})
	left, err := b.has(append(first, second...)...)
	if err != nil || len(left) < 5 || len(left) > 7 || left[len(left)-1] != "i" || slices.Contains(left, "a") && slices.Contains(left, "b") {
		t.Errorf("it has %q (%v)", left, err)
	}
}

func TestNodeRetention_ExitedContainers_AreRemovedByNumber(t *testing.T) {
	b := startBox(t)
	config := sandboxConfig("web")
	sandbox, err := b.runtime.RunPodSandbox(t.Context(), config, "")
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for attempt := range uint32(4) {
		id := b.runContainer(sandbox, config, attempt, node.Linger, "0s")
		ids = append(ids, id)
		if attempt < 3 {
			if err := b.runtime.StopContainer(t.Context(), id, 5); err != nil {
				t.Fatal(err)
			}
		}
	}
	b.apply("few", `{mode: Enforce, containers: {maxPerPodContainer: 1}}`)
	b.eventually(func() error { return b.expectContainers(ids[2:]) })
	b.eventually(func() error {
		s, err := b.status()
		if err == nil && (s.Containers == nil || s.Containers.Removed != 2 || s.Containers.Exited != 1 || s.RecentRemovals[0].Name != "shop/web/c") {
			err = fmt.Errorf("containers: %+v %+v", s.Containers, s.RecentRemovals)
		}
		return err
	})

	// Its image is in use while the Pod runs. When it has ended, containerd removes it although a container refers to it.
	b.apply("clean", clean)
	b.add("a")
	b.expectImages([]string{"a"})
	if i, err := b.images.ImageStatus(t.Context(), &runtimeapi.ImageSpec{Image: node.Linger}, false); err != nil || i.GetImage() == nil {
		t.Errorf("the image of a running container is gone: %v", err)
	}
}

func TestNodeRetention_Monitor_ShowsWhatWouldGo(t *testing.T) {
	b := startBox(t)
	b.add("a", "b")
	b.apply("clean", strings.Replace(clean, "Enforce", "Monitor", 1))
	b.eventually(func() error {
		s, err := b.status()
		if err == nil && (s.Images == nil || s.Images.Due != 2 || len(s.NextRemovals) != 2 || s.NextRemovals[0].Reason != "Usage" || len(s.Policies) != 1) {
			err = fmt.Errorf("status: %+v", s)
		}
		return err
	})
	b.expectImages([]string{"a", "b"}, "a", "b")
}

func TestNodeRetention_RuntimeThatRestartsOrHangs_IsAskedAgain(t *testing.T) {
	b := startBox(t)
	b.add("a")
	b.apply("clean", clean)
	b.expectImages([]string{"a"})
	if err := b.node.RestartRuntime(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.add("b")
	b.wake()
	b.expectImages([]string{"b"})

	resume, err := b.node.StopRuntime()
	if err != nil {
		t.Fatal(err)
	}
	b.wake()
	b.eventually(func() error {
		s, err := b.status()
		if err == nil && s.Reason != v1alpha1.ReasonRuntimeFailed {
			err = fmt.Errorf("reason %q", s.Reason)
		}
		return err
	})
	if err := resume(); err != nil {
		t.Fatal(err)
	}
	b.add("c")
	b.wake()
	b.expectImages([]string{"c"})
	b.eventually(func() error {
		s, err := b.status()
		if err == nil && s.Reason == v1alpha1.ReasonRuntimeFailed {
			err = fmt.Errorf("reason %q", s.Reason)
		}
		return err
	})
}

// The operator is not here: the test answers in its place.
func TestNodeRetention_AsksBeforeARemoval_AndKeepsWhatPoliciesKeep(t *testing.T) {
	b := startBox(t)
	b.add("a", "b")
	b.apply("asks", `{mode: Enforce, images: {minAge: 0s, evaluatePolicies: true}}`)
	b.apply("clean", clean)
	answered := map[string]v1alpha1.ImageRemovalRequestSpec{}
	b.eventually(func() error {
		var list v1alpha1.ImageRemovalRequestList
		if err := b.api.List(b.Context(), &list); err != nil {
			return err
		}
		for _, q := range list.Items {
			if q.Spec.NodeName != b.node.Name() || q.Status.Decision != "" {
				continue
			}
			q.Status = v1alpha1.ImageRemovalRequestStatus{Decision: v1alpha1.ImageRemove}
			if slices.Contains(q.Spec.Image.Names, reference("a")) {
				q.Status = v1alpha1.ImageRemovalRequestStatus{Decision: v1alpha1.ImageKeep, DecidedBy: "ClusterGCPolicy base", After: "1h"}
			}
			if err := b.api.Status().Update(b.Context(), &q); err != nil {
				return err // if it is gone, the node has waited for long enough, and asks again
			}
			answered[q.Spec.Image.Names[0]] = q.Spec
		}
		got, err := b.has("a", "b")
		if err == nil && (!slices.Equal(got, []string{"a"}) || len(answered) != 2) { // either can be the first one
			err = fmt.Errorf("the node has %q, answered were %d requests", got, len(answered))
		}
		return err
	})
	if q := answered[reference("a")]; q.Image.Labels["gleaner.test/program"] != "a" || q.Limit != "Usage" || q.Policy != b.node.Name()+"-clean" || q.Image.SizeBytes == 0 {
		t.Errorf("asked %+v", q)
	}
	b.eventually(func() error {
		s, err := b.status()
		if err == nil && (s.Images == nil || s.Images.Removed != 1 || s.Images.Due != 0) {
			err = fmt.Errorf("images: %+v", s.Images)
		}
		return err
	})
	var left v1alpha1.ImageRemovalRequestList
	if err := b.api.List(b.Context(), &left); err != nil || slices.ContainsFunc(left.Items, func(q v1alpha1.ImageRemovalRequest) bool { return q.Spec.NodeName == b.node.Name() }) {
		t.Errorf("requests are left: %v %v", left.Items, err)
	}
}
