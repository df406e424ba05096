package noderetention

import (
	"strings"
	"time"

	"github.com/distribution/reference"
)

// index finds images by what others call them.
type index map[string][]int // positions in Node.Images by ID and by name

func newIndex(images []Image) index {
	x := index{}
	for at, i := range images {
		x.add(i.ID, at)
		for _, name := range i.Names {
			x.add(name, at)
		}
	}
	return x
}

func (x index) add(name string, at int) {
	for _, form := range Forms(name) {
		x[form] = append(x[form], at)
	}
}

// find calls a function with the position of each image that is called by one of these names.
func (x index) find(names []string, found func(at int)) {
	for _, name := range names {
		for _, form := range Forms(name) {
			for _, at := range x[form] {
				found(at)
			}
		}
	}
}

// Forms returns the names by which an image can be referred to: the name as written, the full name, and the digest.
func Forms(name string) []string {
	list := []string{name}
	if strings.HasPrefix(name, "sha256:") { // as a name, it would be of a repository
		return list
	}
	parsed, err := reference.ParseNormalizedNamed(name)
	if err != nil {
		return list
	}
	if full := reference.TagNameOnly(parsed).String(); full != name {
		list = append(list, full)
	}
	if digested, ok := parsed.(reference.Digested); ok {
		list = append(list, digested.Digest().String())
	}
	return list
}

// used returns which images of a node are in use: the images of containers that have not exited or whose Pod has not ended, and
// the images that Pods need. The image of an exited container is not in use after its Pod has ended.
func (n Node) used() []bool {
	x, used, ended := newIndex(n.Images), make([]bool, len(n.Images)), n.ended()
	mark := func(at int) { used[at] = true }
	for _, c := range n.Containers {
		if !c.Exited || !ended[c.Pod.UID] {
			x.find(c.Images, mark)
		}
	}
	x.find(n.Needed, mark)
	return used
}

// lastRun returns when the newest container of each image was created; zero if the node has none.
func (n Node) lastRun() []time.Time {
	x, last := newIndex(n.Images), make([]time.Time, len(n.Images))
	for _, c := range n.Containers {
		x.find(c.Images, func(at int) {
			if c.Created.After(last[at]) {
				last[at] = c.Created
			}
		})
	}
	return last
}

// IsUnused reports whether the node has an image that is not pinned and that nothing uses.
func (n Node) IsUnused(id string) bool {
	if n.isUnknown() {
		return false
	}
	used := n.used()
	for at, i := range n.Images {
		if i.ID == id {
			return !used[at] && !i.Pinned
		}
	}
	return false
}

// ended returns the UIDs of Pods that are known to have ended: all of their sandboxes have, and they are not alive for the API
// server.
func (n Node) ended() map[string]bool {
	ended := map[string]bool{}
	if !n.Complete {
		return ended
	}
	for _, s := range n.Sandboxes {
		ended[s.PodUID] = true
	}
	for _, s := range n.Sandboxes {
		if s.Ready {
			delete(ended, s.PodUID)
		}
	}
	for _, uid := range n.LivePods {
		delete(ended, uid)
	}
	return ended
}

// isUnknown reports whether a container that may run says nothing about the image that it uses.
func (n Node) isUnknown() bool {
	if !n.Complete {
		return true
	}
	for _, c := range n.Containers {
		if len(c.Images) == 0 {
			return true
		}
	}
	return false
}

// repositoryOf returns the name of an image without its tag or digest; "" if it has none.
func repositoryOf(name string) string {
	parsed, err := reference.ParseNormalizedNamed(name)
	if err != nil || strings.HasPrefix(name, "sha256:") {
		return ""
	}
	return parsed.Name()
}

// matches reports whether a text matches a pattern in which * stands for any characters.
func matches(pattern, text string) bool {
	parts := strings.Split(pattern, "*")
	if len(parts) == 1 {
		return pattern == text
	}
	first, last := parts[0], parts[len(parts)-1]
	if !strings.HasPrefix(text, first) {
		return false
	}
	text = text[len(first):]
	for _, part := range parts[1 : len(parts)-1] {
		at := strings.Index(text, part)
		if at < 0 {
			return false
		}
		text = text[at+len(part):]
	}
	return strings.HasSuffix(text, last)
}
