// Package noderetention decides which images and exited containers of a node go and which stay: what the kubelet's collectors of
// images and containers do, by policies. It makes candidates of what a container runtime lists, and operator/retain decides about
// them.
//
// It is pure: lists, policies and the time come in, and plans come out. It calls no runtime, and removes nothing. It remembers when
// each image was seen and used.
//
// What is not known keeps an image: while something that may use images has not been read, all of them are in use.
package noderetention

import (
	"errors"
	"time"

	"github.com/gleaner-dev/gleaner/operator/retain"
)

// ErrRefused says that a container runtime does not remove an image because a container refers to it.
var ErrRefused = errors.New("the container runtime says that it is in use")

// Image is an image on a node. https://kubernetes.io/docs/concepts/architecture/garbage-collection/#containers-images
type Image struct {
	ID     string
	Names  []string // by tag and by digest, as in registry.example.com/web:1
	Size   int64    // in bytes
	Pinned bool     // by the container runtime: it is never removed
}

// Container is a container on a node.
type Container struct {
	ID      string
	Name    string // in its Pod
	Pod     Pod
	Exited  bool // it has run, and doesn't any more
	Created time.Time

	// Images are those that the container runs or mounts, each by an ID or a name.
	Images []string
}

// Pod says which Pod a container belongs to.
type Pod struct{ UID, Namespace, Name string }

// Sandbox is the sandbox of a Pod on a node.
type Sandbox struct {
	PodUID string
	Ready  bool // the Pod runs, or is about to
}

// Node is what a node has at one time.
type Node struct {
	Images     []Image
	Containers []Container
	Sandboxes  []Sandbox

	// LivePods are the UIDs of the Pods on the node that have not ended, according to the API server. Needed are the images
	// that they name and those that sandboxes run, each by a name or an ID.
	LivePods []string
	Needed   []string

	// Complete is set if everything that may use images has been read. Otherwise no image is unused.
	Complete bool
}

// Policy is limits of images and containers. The zero Policy removes nothing.
type Policy struct {
	Name       string
	UID        string
	Generation int64
	Enforce    bool // carries out removals; otherwise they are shown

	Images     *ImageLimits     // nil: none
	Containers *ContainerLimits // nil: none
}

// ImageLimits are limits of the images on a node.
type ImageLimits struct {
	// MinAge is how long an image must have been on the node before any limit removes it.
	MinAge time.Duration

	// MaxAge is how long an image can be unused. 0: no limit.
	MaxAge time.Duration

	// Usage are limits of the usage of the file system that has the images. Nil: no limit.
	Usage *retain.Watermarks

	// Keep are names of images that stay, in which * stands for any characters.
	Keep []string

	// EvaluatePolicies has others asked before any policy removes an image.
	EvaluatePolicies bool
}

// ContainerLimits are limits of the exited containers on a node. Nil numbers are no limits.
type ContainerLimits struct {
	MinAge          time.Duration // since a container was created
	MaxPerContainer *int          // of each container of a Pod
	MaxTotal        *int          // on the node; where both conflict, MaxPerContainer gives way (P-09)
}

// Result is what one policy does with the images or the containers of a node.
type Result struct {
	Policy   Policy
	Removals []Item                   // in the order in which they are carried out
	Upcoming []Item                   // those that are removed later if nothing changes, the next first
	Kept     map[string]retain.Reason // why others stay, by ID

	// Next is when an evaluation of the same state has another result. Zero: only when something changes.
	Next time.Time

	// ToFree is how many bytes had to be freed, and Shortfall how many of them no removal frees.
	ToFree, Shortfall int64

	Problems []string
}

// Item is an image or a container that is removed, and why.
type Item struct {
	ID      string
	Name    string // for people
	Size    int64  // in bytes; 0 for containers
	Reason  retain.Reason
	Due     time.Time // of what is upcoming
	Created time.Time // when the container was created, or the image first seen
}
