// Package lastseen keeps the metadata of objects that a watch has just delivered, so that those
// that are decided about by their metadata at once are not read again.
//
// It is an offer: it may have an object or not. What it has is bounded in size and age.
package lastseen

import (
	"container/list"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// maxAge is how long metadata is kept: the object may have changed since.
	maxAge = 5 * time.Second

	// maxBytes is the size of everything that is kept, and maxObjectBytes that of the metadata of one
	// object, both as protobuf. In memory it takes up to three times as much.
	maxBytes, maxObjectBytes = 8 << 20, 16 << 10
)

// Store has metadata. The zero Store is empty and ready to use. Its methods may be called
// concurrently.
type Store struct {
	mu      sync.Mutex // covers what follows
	objects map[types.UID]*list.Element
	order   list.List // of entries, oldest first
	bytes   int
	expires bool // expire will be called
}

type entry struct {
	metadata *metav1.PartialObjectMetadata
	bytes    int
	seen     time.Time
}

// Put keeps metadata, instead of older metadata of the same object. It must not be changed
// afterward.
func (s *Store) Put(metadata *metav1.PartialObjectMetadata, now time.Time) {
	size := metadata.Size()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.remove(s.objects[metadata.UID])
	if size > maxObjectBytes {
		return
	}
	if s.objects == nil {
		s.objects = map[types.UID]*list.Element{}
	}
	if !s.expires {
		s.expires = true
		time.AfterFunc(maxAge, func() { s.expire(time.Now()) })
	}
	s.objects[metadata.UID] = s.order.PushBack(&entry{metadata, size, now})
	s.bytes += size
	for s.bytes > maxBytes {
		s.remove(s.order.Front())
	}
}

// Take returns the metadata of an object in a state, and no longer keeps it.
func (s *Store) Take(uid types.UID, resourceVersion string, now time.Time) (*metav1.PartialObjectMetadata, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at, ok := s.objects[uid]
	if !ok {
		return nil, false
	}
	s.remove(at)
	return at.Value.(*entry).in(resourceVersion, now) //nolint:forcetypeassert // it has nothing else
}

// Get returns the metadata of an object in a state, which must not be changed.
func (s *Store) Get(uid types.UID, resourceVersion string, now time.Time) (*metav1.PartialObjectMetadata, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at, ok := s.objects[uid]
	if !ok {
		return nil, false
	}
	return at.Value.(*entry).in(resourceVersion, now) //nolint:forcetypeassert // it has nothing else
}

// in returns the metadata if it is that of a state, and not too old.
func (e *entry) in(resourceVersion string, now time.Time) (*metav1.PartialObjectMetadata, bool) {
	if resourceVersion == "" || e.metadata.ResourceVersion != resourceVersion || now.Sub(e.seen) >= maxAge {
		return nil, false
	}
	return e.metadata, true
}

// remove removes an entry, if there is one.
func (s *Store) remove(at *list.Element) {
	if at == nil {
		return
	}
	e := s.order.Remove(at).(*entry) //nolint:forcetypeassert // it has nothing else
	delete(s.objects, e.metadata.UID)
	s.bytes -= e.bytes
}

// expire removes what is too old, and does so again as long as there is something.
func (s *Store) expire(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for at := s.order.Front(); at != nil && now.Sub(at.Value.(*entry).seen) >= maxAge; at = s.order.Front() { //nolint:forcetypeassert // it has nothing else
		s.remove(at)
	}
	if s.expires = s.order.Len() != 0; s.expires {
		time.AfterFunc(maxAge, func() { s.expire(time.Now()) })
	}
}
