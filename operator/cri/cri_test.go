package cri

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/gleaner-dev/gleaner/operator/noderetention"
)

// server is a container runtime in memory.
type server struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	runtimeapi.UnimplementedImageServiceServer
	config    string // in its status
	removeErr error
	statuses  int // calls of ContainerStatus
	gone      []string
}

func (s *server) Version(context.Context, *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{Version: "v1", RuntimeName: "test", RuntimeVersion: "1", RuntimeApiVersion: "v1"}, nil
}

func (s *server) Status(context.Context, *runtimeapi.StatusRequest) (*runtimeapi.StatusResponse, error) {
	ready := &runtimeapi.RuntimeStatus{Conditions: []*runtimeapi.RuntimeCondition{{Type: "RuntimeReady", Status: true}, {Type: "NetworkReady", Status: true}}}
	return &runtimeapi.StatusResponse{Status: ready, Info: map[string]string{"config": s.config}}, nil
}

func (s *server) ImageFsInfo(context.Context, *runtimeapi.ImageFsInfoRequest) (*runtimeapi.ImageFsInfoResponse, error) {
	return &runtimeapi.ImageFsInfoResponse{ImageFilesystems: []*runtimeapi.FilesystemUsage{{FsId: &runtimeapi.FilesystemIdentifier{Mountpoint: "/images"}}}}, nil
}

func (s *server) ListImages(context.Context, *runtimeapi.ListImagesRequest) (*runtimeapi.ListImagesResponse, error) {
	return &runtimeapi.ListImagesResponse{Images: []*runtimeapi.Image{{Id: "sha256:a", RepoTags: []string{"web:1"}, RepoDigests: []string{"web@sha256:d"}, Size: 7, Pinned: true}}}, nil
}

func (s *server) ListPodSandbox(context.Context, *runtimeapi.ListPodSandboxRequest) (*runtimeapi.ListPodSandboxResponse, error) {
	return &runtimeapi.ListPodSandboxResponse{Items: []*runtimeapi.PodSandbox{
		{Id: "s", Metadata: &runtimeapi.PodSandboxMetadata{Uid: "u"}, State: runtimeapi.PodSandboxState_SANDBOX_READY},
		{Id: "t", Metadata: &runtimeapi.PodSandboxMetadata{Uid: "v"}, State: runtimeapi.PodSandboxState_SANDBOX_NOTREADY},
	}}, nil
}

func (s *server) ListContainers(context.Context, *runtimeapi.ListContainersRequest) (*runtimeapi.ListContainersResponse, error) {
	var list []*runtimeapi.Container
	for at, state := range []runtimeapi.ContainerState{
		runtimeapi.ContainerState_CONTAINER_EXITED, runtimeapi.ContainerState_CONTAINER_RUNNING, runtimeapi.ContainerState_CONTAINER_CREATED, runtimeapi.ContainerState_CONTAINER_UNKNOWN,
	} {
		list = append(list, &runtimeapi.Container{
			Id: string(rune('1' + at)), State: state, CreatedAt: int64(at), ImageRef: "sha256:a", Image: &runtimeapi.ImageSpec{Image: "sha256:a", UserSpecifiedImage: "web"},
			Labels: map[string]string{podUIDLabel: "u", podNameLabel: "web-1", podNamespaceLabel: "shop", containerNameLabel: "c"},
		})
	}
	return &runtimeapi.ListContainersResponse{Containers: list}, nil
}

func (s *server) ContainerStatus(_ context.Context, r *runtimeapi.ContainerStatusRequest) (*runtimeapi.ContainerStatusResponse, error) {
	s.statuses++
	if slices.Contains(s.gone, r.GetContainerId()) {
		return nil, status.Error(codes.NotFound, "no such container")
	}
	return &runtimeapi.ContainerStatusResponse{Status: &runtimeapi.ContainerStatus{
		Id: r.GetContainerId(), Metadata: &runtimeapi.ContainerMetadata{Name: "c"}, Image: &runtimeapi.ImageSpec{Image: "a"}, ImageRef: "a", CreatedAt: 1,
		State: runtimeapi.ContainerState_CONTAINER_EXITED, StartedAt: 1, FinishedAt: 2,
		Mounts: []*runtimeapi.Mount{{ContainerPath: "/data"}, {ContainerPath: "/models", Image: &runtimeapi.ImageSpec{Image: "sha256:m"}}},
	}}, nil
}

func (s *server) RemoveImage(context.Context, *runtimeapi.RemoveImageRequest) (*runtimeapi.RemoveImageResponse, error) {
	return &runtimeapi.RemoveImageResponse{}, s.removeErr
}

func serve(t *testing.T, s *server) *Client {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "cri.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer()
	runtimeapi.RegisterRuntimeServiceServer(g, s)
	runtimeapi.RegisterImageServiceServer(g, s)
	go func() { _ = g.Serve(listener) }()
	t.Cleanup(g.Stop)
	c := New("unix://"+socket, 10*time.Second)
	t.Cleanup(func() { _ = c.Close(context.WithoutCancel(t.Context())) })
	return c
}

func TestNode_ListsWhatMayUseImages(t *testing.T) {
	s := &server{config: `{"sandboxImage": "registry.k8s.io/pause:3.10"}`, gone: []string{"4"}}
	c := serve(t, s)
	got, err := c.Node(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	container := func(id string, nanos int64, exited bool) noderetention.Container {
		return noderetention.Container{
			ID: id, Name: "c", Pod: noderetention.Pod{UID: "u", Namespace: "shop", Name: "web-1"}, Exited: exited, Created: time.Unix(0, nanos),
			Images: []string{"sha256:a", "sha256:a", "web", "sha256:m"},
		}
	}
	want := noderetention.Node{
		Images:     []noderetention.Image{{ID: "sha256:a", Names: []string{"web:1", "web@sha256:d"}, Size: 7, Pinned: true}},
		Sandboxes:  []noderetention.Sandbox{{PodUID: "u", Ready: true}, {PodUID: "v"}},
		Containers: []noderetention.Container{container("1", 0, true), container("2", 1, false), container("3", 2, false)}, // the fourth is gone
		Needed:     []string{"registry.k8s.io/pause:3.10"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	before := s.statuses
	if _, err := c.Containers(t.Context()); err != nil || s.statuses != before+1 {
		t.Errorf("the mounts of %d containers were read again (%v), want those of one that was gone", s.statuses-before, err)
	}
	if path, err := c.ImageFilesystem(t.Context()); err != nil || path != "/images" {
		t.Errorf("file system: %q, %v", path, err)
	}
	if exited, err := c.Exited(t.Context(), "4"); err != nil || exited {
		t.Errorf("a container that is gone: %v, %v", exited, err)
	}
}

func TestRemoveImage_TellsRefusalsFromFailures(t *testing.T) {
	for what, c := range map[string]struct {
		err           error
		refused, done bool
	}{
		"it is removed":         {nil, false, true},
		"it is gone":            {status.Error(codes.NotFound, "no such image"), false, true},
		"CRI-O refuses":         {errors.New("image used by 4b8c2f: image is in use by a container"), true, false},
		"a Docker shim refuses": {errors.New("unable to delete 1e62b6 - image is being used by running container 5f7989"), true, false},
		"another runtime does":  {status.Error(codes.FailedPrecondition, "in use"), true, false},
		"it fails":              {errors.New("read-only file system"), false, false},
	} {
		err := serve(t, &server{removeErr: c.err}).RemoveImage(t.Context(), "sha256:a")
		if (err == nil) != c.done || errors.Is(err, noderetention.ErrRefused) != c.refused {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestClient_ConnectsWhenTheRuntimeIsThere(t *testing.T) {
	c := New("unix://"+filepath.Join(t.TempDir(), "none.sock"), 100*time.Millisecond)
	if _, err := c.Node(t.Context()); err == nil {
		t.Error("there is no runtime")
	}
	if _, _, err := c.Image(t.Context(), "sha256:a"); err == nil {
		t.Error("there is no runtime, so the image is not known to be gone")
	}
}
