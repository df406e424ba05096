package lastseen

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func metadataOf(uid, resourceVersion string, size int) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		UID: types.UID(uid), ResourceVersion: resourceVersion, Annotations: map[string]string{"a": strings.Repeat("x", size)},
	}}
}

func TestTake_OnceAndOnlyInTheWantedState(t *testing.T) {
	for name, c := range map[string]struct {
		resourceVersion string
		after           time.Duration
		want            bool
	}{
		"the same state":               {"7", 0, true},
		"the same state, a bit later":  {"7", maxAge - 1, true},
		"the same state, too long ago": {"7", maxAge, false},
		"another state":                {"8", 0, false},
		"no known state":               {"", 0, false},
	} {
		var s Store
		s.Put(metadataOf("a", "7", 10), start)
		for range 2 { // it stays
			if m, ok := s.Get("a", c.resourceVersion, start.Add(c.after)); ok != c.want || ok && m.UID != "a" {
				t.Errorf("%s: got %v, want %v", name, ok, c.want)
			}
		}
		if m, ok := s.Take("a", c.resourceVersion, start.Add(c.after)); ok != c.want || ok && m.UID != "a" {
			t.Errorf("%s: got %v, want %v", name, ok, c.want)
		}
		if _, ok := s.Take("a", "7", start); ok {
			t.Errorf("%s: taken twice", name)
		}
	}
	var s Store
	if _, ok := s.Take("a", "7", start); ok {
		t.Error("the zero Store has an object")
	}
	if _, ok := s.Get("a", "7", start); ok {
		t.Error("the zero Store has an object")
	}
}

func TestPut_ReplacesOlderMetadata(t *testing.T) {
	var s Store
	s.Put(metadataOf("a", "7", 10), start)
	s.Put(metadataOf("a", "8", maxObjectBytes), start) // too large to be kept
	if _, ok := s.Take("a", "7", start); ok {
		t.Error("an old state is kept")
	}
	s.Put(metadataOf("b", "7", 10), start)
	s.Put(metadataOf("b", "8", 10), start)
	if _, ok := s.Take("b", "8", start); !ok || s.bytes != 0 || s.order.Len() != 0 {
		t.Errorf("%v; %d bytes in %d entries are left", ok, s.bytes, s.order.Len())
	}
}

func TestPut_IsBounded(t *testing.T) {
	var s Store
	const n = 2000
	for i := range n {
		s.Put(metadataOf(fmt.Sprint(i), "7", maxObjectBytes-200), start)
	}
	if s.bytes > maxBytes || s.order.Len() != len(s.objects) || s.order.Len() < maxBytes/maxObjectBytes {
		t.Errorf("%d bytes in %d of %d entries", s.bytes, s.order.Len(), len(s.objects))
	}
	if _, ok := s.Take("0", "7", start); ok {
		t.Error("the oldest is kept")
	}
	if _, ok := s.Take(types.UID(fmt.Sprint(n-1)), "7", start); !ok {
		t.Error("the newest is not kept")
	}
}

func TestExpire_RemovesWhatIsOld(t *testing.T) {
	var s Store
	s.Put(metadataOf("a", "7", 10), start)
	s.Put(metadataOf("b", "7", 10), start.Add(time.Second))
	s.expire(start.Add(maxAge))
	if _, ok := s.Take("b", "7", start.Add(maxAge)); !ok || s.order.Len() != 0 || s.bytes != 0 {
		t.Errorf("%v; %d bytes in %d entries are left", ok, s.bytes, s.order.Len())
	}
}
