// Package cri lists and removes the images and containers of a node through its container runtime, by the Container Runtime
// Interface (https://kubernetes.io/docs/concepts/containers/cri/): containerd, CRI-O and others.
//
// Each call ends within a time limit, whatever the runtime does. Responses are limited to 16 MiB by the client of Kubernetes.
package cri

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	client "k8s.io/cri-client/pkg"

	"github.com/gleaner-dev/gleaner/operator/noderetention"
)

// The labels with which the kubelet says what a container belongs to.
const (
	podUIDLabel        = "io.kubernetes.pod.uid"
	podNameLabel       = "io.kubernetes.pod.name"
	podNamespaceLabel  = "io.kubernetes.pod.namespace"
	containerNameLabel = "io.kubernetes.container.name"
)

// Client calls a container runtime. It connects with the first call, and again if the connection is lost.
type Client struct {
	endpoint string
	timeout  time.Duration

	mu      sync.Mutex
	runtime internalapi.RuntimeService      // nil until connected
	images  internalapi.ImageManagerService // nil until connected
	sandbox []string                        // images of sandboxes, as the runtime is configured
	mounted map[string][]string             // images that containers mount, by the ID of the container
}

// New returns a client of the runtime at an endpoint such as unix:///run/containerd/containerd.sock. Each call ends after a
// timeout.
func New(endpoint string, timeout time.Duration) *Client {
	return &Client{endpoint: endpoint, timeout: timeout, mounted: map[string][]string{}}
}

// services returns the services of the runtime, and connects if that has not been done.
func (c *Client) services(ctx context.Context) (internalapi.RuntimeService, internalapi.ImageManagerService, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.images != nil {
		return c.runtime, c.images, nil
	}
	runtime, err := client.NewRemoteRuntimeServiceBuilder().WithEndpoint(c.endpoint).WithConnectionTimeout(c.timeout).Build(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("connect to the container runtime: %w", err)
	}
	images, err := client.NewRemoteImageServiceBuilder().WithEndpoint(c.endpoint).WithConnectionTimeout(c.timeout).Build(ctx)
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("connect to the container runtime: %w", err), runtime.Close(ctx))
	}
	if c.sandbox, err = sandboxImages(ctx, runtime); err != nil {
		return nil, nil, errors.Join(err, runtime.Close(ctx), images.Close(ctx))
	}
	c.runtime, c.images = runtime, images
	return runtime, images, nil
}

// Close closes the connection.
func (c *Client) Close(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.images == nil {
		return nil
	}
	err := errors.Join(c.runtime.Close(ctx), c.images.Close(ctx))
	c.runtime, c.images = nil, nil
	return err
}

// sandboxImages returns the image of sandboxes in the configuration of containerd 1, which does not pin it. Other runtimes do.
func sandboxImages(ctx context.Context, runtime internalapi.RuntimeService) ([]string, error) {
	response, err := runtime.Status(ctx, true)
	if err != nil {
		return nil, fmt.Errorf("read status of the container runtime: %w", err)
	}
	var config struct{ SandboxImage string }
	if text := response.GetInfo()["config"]; text != "" {
		if err := json.Unmarshal([]byte(text), &config); err != nil {
			return nil, fmt.Errorf("read configuration of the container runtime: %w", err)
		}
	}
	if config.SandboxImage == "" {
		return nil, nil
	}
	return []string{config.SandboxImage}, nil
}

// Node lists what the node has. What Pods need is not known to the runtime: Complete is not set.
func (c *Client) Node(ctx context.Context) (noderetention.Node, error) {
	runtime, images, err := c.services(ctx)
	if err != nil {
		return noderetention.Node{}, err
	}
	// Images first: one that is pulled meanwhile for a container is not seen, and stays.
	listed, err := images.ListImages(ctx, nil)
	if err != nil {
		return noderetention.Node{}, fmt.Errorf("list images: %w", err)
	}
	n, err := c.containers(ctx, runtime)
	if err != nil {
		return noderetention.Node{}, err
	}
	for _, i := range listed {
		n.Images = append(n.Images, imageOf(i))
	}
	n.Needed = c.sandbox
	return n, nil
}

// Containers lists containers and sandboxes only.
func (c *Client) Containers(ctx context.Context) (noderetention.Node, error) {
	runtime, _, err := c.services(ctx)
	if err != nil {
		return noderetention.Node{}, err
	}
	n, err := c.containers(ctx, runtime)
	n.Needed = c.sandbox
	return n, err
}

func (c *Client) containers(ctx context.Context, runtime internalapi.RuntimeService) (n noderetention.Node, err error) {
	sandboxes, err := runtime.ListPodSandbox(ctx, nil)
	if err != nil {
		return n, fmt.Errorf("list sandboxes: %w", err)
	}
	for _, s := range sandboxes {
		ready := s.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY
		n.Sandboxes = append(n.Sandboxes, noderetention.Sandbox{PodUID: s.GetMetadata().GetUid(), Ready: ready})
	}
	containers, err := runtime.ListContainers(ctx, nil)
	if err != nil {
		return n, fmt.Errorf("list containers: %w", err)
	}
	listed := map[string]bool{}
	for _, container := range containers {
		one := containerOf(container)
		mounted, err := c.mounts(ctx, runtime, one.ID)
		if isNotFound(err) {
			continue
		}
		if err != nil {
			return n, err
		}
		one.Images = append(one.Images, mounted...)
		n.Containers = append(n.Containers, one)
		listed[one.ID] = true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.mounted, func(id string, _ []string) bool { return !listed[id] })
	return n, nil
}

// mounts returns the images that a container mounts as volumes. They don't change.
func (c *Client) mounts(ctx context.Context, runtime internalapi.RuntimeService, id string) ([]string, error) {
	c.mu.Lock()
	images, known := c.mounted[id]
	c.mu.Unlock()
	if known {
		return images, nil
	}
	response, err := runtime.ContainerStatus(ctx, id, false)
	if err != nil {
		return nil, fmt.Errorf("read status of container %s: %w", id, err)
	}
	for _, m := range response.GetStatus().GetMounts() {
		images = append(images, named(m.GetImage().GetImage(), m.GetImage().GetUserSpecifiedImage())...)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mounted[id] = images
	return images, nil
}

func named(names ...string) (list []string) {
	for _, name := range names {
		if name != "" {
			list = append(list, name)
		}
	}
	return list
}

func imageOf(i *runtimeapi.Image) noderetention.Image {
	return noderetention.Image{
		ID: i.GetId(), Names: named(append(append([]string(nil), i.GetRepoTags()...), i.GetRepoDigests()...)...),
		Size: int64(min(i.GetSize(), 1<<62)), Pinned: i.GetPinned(), //nolint:gosec // bounded
	}
}

func containerOf(c *runtimeapi.Container) noderetention.Container {
	labels := c.GetLabels()
	name := labels[containerNameLabel]
	if name == "" {
		name = c.GetMetadata().GetName()
	}
	return noderetention.Container{
		ID: c.GetId(), Name: name,
		Pod:     noderetention.Pod{UID: labels[podUIDLabel], Namespace: labels[podNamespaceLabel], Name: labels[podNameLabel]},
		Exited:  c.GetState() == runtimeapi.ContainerState_CONTAINER_EXITED,
		Created: time.Unix(0, c.GetCreatedAt()),
		Images:  named(c.GetImageId(), c.GetImageRef(), c.GetImage().GetImage(), c.GetImage().GetUserSpecifiedImage()),
	}
}

func isNotFound(err error) bool { return status.Code(err) == codes.NotFound }

// Image reads an image by its ID. It returns false if the node does not have it.
func (c *Client) Image(ctx context.Context, id string) (noderetention.Image, bool, error) {
	_, images, err := c.services(ctx)
	if err != nil {
		return noderetention.Image{}, false, err
	}
	response, err := images.ImageStatus(ctx, &runtimeapi.ImageSpec{Image: id}, false)
	switch {
	case isNotFound(err):
		return noderetention.Image{}, false, nil
	case err != nil:
		return noderetention.Image{}, false, fmt.Errorf("read image %s: %w", id, err)
	case response.GetImage() == nil:
		return noderetention.Image{}, false, nil
	default:
		return imageOf(response.GetImage()), true, nil
	}
}

// Labels reads the labels in the configuration of an image, as containerd and CRI-O show them. There are none if the node does not
// have the image, or the runtime does not show them.
func (c *Client) Labels(ctx context.Context, id string) (map[string]string, error) {
	_, images, err := c.services(ctx)
	if err != nil {
		return nil, err
	}
	response, err := images.ImageStatus(ctx, &runtimeapi.ImageSpec{Image: id}, true)
	if isNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read labels of image %s: %w", id, err)
	}
	var info struct {
		ImageSpec struct {
			Config struct{ Labels map[string]string }
		}
	}
	if text := response.GetInfo()["info"]; text != "" {
		if err := json.Unmarshal([]byte(text), &info); err != nil {
			return nil, fmt.Errorf("read labels of image %s: %w", id, err)
		}
	}
	return info.ImageSpec.Config.Labels, nil
}

// RemoveImage removes an image by its ID, with all of its names. It is no error if the node does not have it. It returns
// noderetention.ErrRefused if the runtime refuses because a container refers to it.
func (c *Client) RemoveImage(ctx context.Context, id string) error {
	_, images, err := c.services(ctx)
	if err != nil {
		return err
	}
	err = images.RemoveImage(ctx, &runtimeapi.ImageSpec{Image: id})
	switch code := status.Code(err); {
	case err == nil || code == codes.NotFound:
		return nil
	case code == codes.FailedPrecondition || code == codes.Unknown && isInUse(err):
		return fmt.Errorf("remove image %s: %w: %w", id, noderetention.ErrRefused, err)
	default:
		return fmt.Errorf("remove image %s: %w", id, err)
	}
}

// isInUse reports whether a runtime says that an image is in use. CRI-O has no code for that.
func isInUse(err error) bool {
	text := err.Error()
	return strings.Contains(text, "in use by a container") || strings.Contains(text, "is being used by")
}

// RemoveContainer removes a container by its ID. It is no error if the node does not have it.
func (c *Client) RemoveContainer(ctx context.Context, id string) error {
	runtime, _, err := c.services(ctx)
	if err != nil {
		return err
	}
	if err := runtime.RemoveContainer(ctx, id); err != nil && !isNotFound(err) {
		return fmt.Errorf("remove container %s: %w", id, err)
	}
	return nil
}

// Exited reads whether a container has exited. It returns false also if the node does not have it.
func (c *Client) Exited(ctx context.Context, id string) (bool, error) {
	runtime, _, err := c.services(ctx)
	if err != nil {
		return false, err
	}
	response, err := runtime.ContainerStatus(ctx, id, false)
	if isNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read status of container %s: %w", id, err)
	}
	return response.GetStatus().GetState() == runtimeapi.ContainerState_CONTAINER_EXITED, nil
}

// ImageFilesystem returns where the file system that has the images is mounted, according to the runtime.
func (c *Client) ImageFilesystem(ctx context.Context) (string, error) {
	_, images, err := c.services(ctx)
	if err != nil {
		return "", err
	}
	response, err := images.ImageFsInfo(ctx)
	if err != nil {
		return "", fmt.Errorf("read image file systems: %w", err)
	}
	for _, f := range response.GetImageFilesystems() {
		if path := f.GetFsId().GetMountpoint(); path != "" {
			return path, nil
		}
	}
	return "", errors.New("the container runtime reports no file system for images")
}
