package node

import (
	"errors"
	"fmt"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// More is written than the file system can hold, while images are removed. What is in use stays, and space is free in the end.
func TestNodeRetention_ADiskThatFillsFasterThanItIsFreed_IsFreedInTheEnd(t *testing.T) {
	b := startBox(t)
	b.add("used")
	_, container := b.runPod("web", reference("used"), "1s")
	b.apply("full", `{mode: Enforce, images: {highThresholdPercent: 50, lowThresholdPercent: 30, minAge: 0s}}`)
	failed := 0
	for i := range 40 { // of 8 MiB each, packed and unpacked
		if err := b.node.Import(t.Context(), reference(fmt.Sprint("i", i)), b.program(fmt.Sprint("i", i))); err != nil {
			failed++
		}
	}
	t.Logf("%d of 40 images did not fit", failed)
	b.eventually(func() error {
		s, err := b.status()
		if err == nil && (s.ImageFilesystem == nil || s.ImageFilesystem.UsedPercent >= 50 || s.Images.Removed == 0) {
			err = fmt.Errorf("status: %+v %+v", s.ImageFilesystem, s.Images)
		}
		return err
	})
	if got, err := b.has("used"); err != nil || len(got) != 1 {
		t.Errorf("the image of a running container is gone: %v", err)
	}
	b.expectContainerRuns(container)
}

// An image is pulled and run again and again while a policy removes everything that is unused. As by a kubelet, it is pulled again if it
// was removed in between; once its container has been created, it stays.
func TestNodeRetention_AnImageThatIsPulledAndRunWhileItIsRemoved_StaysOnceItsContainerExists(t *testing.T) {
	b := startBox(t)
	b.apply("clean", clean)
	program := b.program("a")
	config := sandboxConfig("web")
	sandbox, err := b.runtime.RunPodSandbox(t.Context(), config, "")
	if err != nil {
		t.Fatal(err)
	}
	var running []string
	for attempt := range uint32(8) {
		b.wake()
		var id string
		b.eventually(func() (err error) {
			if err := b.node.Import(t.Context(), reference("a"), program); err != nil {
				return err
			}
			id, err = b.createContainer(sandbox, config, attempt, reference("a"), "1s")
			return err
		})
		if err := b.runtime.StartContainer(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		running = append(running, id)
		if attempt%2 == 0 { // the next one finds it unused, as far as this Pod is concerned
			continue
		}
		for _, id := range running {
			if err := errors.Join(b.runtime.StopContainer(t.Context(), id, 5), b.runtime.RemoveContainer(t.Context(), id)); err != nil {
				t.Fatal(err)
			}
		}
		running = nil
		b.wake()
		b.expectImages([]string{"a"})
	}
}

// expectContainerRuns fails unless a container runs.
func (b *box) expectContainerRuns(id string) {
	b.Helper()
	s, err := b.runtime.ContainerStatus(b.Context(), id, false)
	if err != nil || s.GetStatus().GetState() != runtimeapi.ContainerState_CONTAINER_RUNNING {
		b.Errorf("the container does not run: %v %v", s.GetStatus().GetState(), err)
	}
}
