package record

import (
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Results of actions that the store distinguishes. In a dry run, the same action is
// decided again on every reconciliation.
const (
	done   = "Done"
	dryRun = "DryRun"
)

// Limits are the limits of a Store. Entries are limited by number; transcripts vary in
// size, so they are limited by their total size.
type Limits struct {
	MaxEntries         int // default DefaultMaxEntries
	MaxTranscriptBytes int // approximate size in bytes; default DefaultMaxTranscriptBytes; negative: keep none
}

// The default limits of a Store.
const (
	DefaultMaxEntries         = 10_000
	DefaultMaxTranscriptBytes = 32 << 20
)

// Store keeps the newest entries. Its methods may be called concurrently.
type Store struct {
	limits Limits

	mu      sync.Mutex // covers what follows
	entries []Entry    // a ring; next is the oldest once it is full
	next    int
	latest  map[entryKey]int  // index of the newest entry for each topic
	deletes map[types.UID]int // index of each object's newest entry that deletes it

	lastEvicted time.Time // time of the newest entry that was evicted

	transcriptSizes []transcriptSize // from old to new
	transcriptBytes int              // total size of transcripts
}

// transcriptSize is the index of an entry that has transcripts, and their size.
type transcriptSize struct{ index, bytes int }

// NewStore returns a Store without entries.
func NewStore(b Limits) *Store {
	if b.MaxEntries == 0 {
		b.MaxEntries = DefaultMaxEntries
	}
	if b.MaxTranscriptBytes == 0 {
		b.MaxTranscriptBytes = DefaultMaxTranscriptBytes
	}
	b.MaxTranscriptBytes = max(b.MaxTranscriptBytes, 0)
	return &Store{limits: b, latest: map[entryKey]int{}, deletes: map[types.UID]int{}}
}

// Size returns the number of entries and the approximate size of their transcripts in bytes.
func (s *Store) Size() (entries, transcripts int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.entries), s.transcriptBytes
}

// Add sets the chain of an entry and stores it. It returns false, and stores nothing,
// if nothing was written and the entry repeats the object's newest one: an object that
// is stuck has one record, not one for each reconciliation.
func (s *Store) Add(e Entry) (Entry, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	repeated := e.Action == None || e.Result == dryRun
	if at, ok := s.latest[entryKeyOf(e)]; ok && repeated && sameDecision(s.entries[at], e) {
		return s.entries[at], false
	}
	e.Chain, e.Root = nil, ""
	e = e.ExtendChain(s.deletionOf)
	at := len(s.entries)
	if at < s.limits.MaxEntries {
		s.entries = append(s.entries, e)
	} else {
		at = s.next
		s.next = (s.next + 1) % len(s.entries)
		s.evict(at)
		s.entries[at] = e
	}
	s.accountTranscripts(at)
	s.latest[entryKeyOf(e)] = at
	if e.Deleted() {
		s.deletes[e.Object.UID] = at
	}
	return e, true
}

// evict removes the oldest entry, which is at the given index, from the indexes.
func (s *Store) evict(at int) {
	if len(s.transcriptSizes) != 0 && s.transcriptSizes[0].index == at {
		s.removeOldestTranscript()
	}
	s.lastEvicted = s.entries[at].Time
	about, uid := entryKeyOf(s.entries[at]), s.entries[at].Object.UID
	if place, ok := s.latest[about]; ok && place == at {
		delete(s.latest, about)
	}
	if place, ok := s.deletes[uid]; ok && place == at {
		delete(s.deletes, uid)
	}
}

// entryKey is the key by which repeated entries are detected: an object, and the
// finalizer if the decision is about one. Decisions about different finalizers of an
// object do not supersede each other.
type entryKey struct {
	uid       types.UID
	finalizer string
}

func entryKeyOf(e Entry) entryKey {
	t := entryKey{uid: e.Object.UID}
	if e.Action == None {
		t.finalizer = e.Detail
	}
	return t
}

func sameDecision(a, b Entry) bool {
	if a.Action != b.Action || a.Result != b.Result || a.Detail != b.Detail || a.Reason != b.Reason || a.Message != b.Message {
		return false
	}
	if len(b.Evaluations) == 0 && len(b.Intents) == 0 { // no new evaluation: the earlier verdict still holds
		return slices.Equal(a.Owners, b.Owners) && slices.Equal(a.Blockers, b.Blockers)
	}
	return slices.Equal(a.Owners, b.Owners) && slices.Equal(a.Blockers, b.Blockers) && slices.Equal(a.Intents, b.Intents) &&
		slices.EqualFunc(a.Evaluations, b.Evaluations, sameVerdict)
}

// sameVerdict reports whether two evaluations had the same result, regardless of their
// requests and durations.
func sameVerdict(a, b Evaluation) bool {
	return a.Policy == b.Policy && a.Generation == b.Generation && a.Mode == b.Mode && a.Module == b.Module &&
		a.Digest == b.Digest && a.Decision == b.Decision && a.Reason == b.Reason && a.Fault == b.Fault && a.Rounds == b.Rounds
}

// deletionOf returns the newest entry that deletes an object.
func (s *Store) deletionOf(uid types.UID) (Entry, bool) {
	at, ok := s.deletes[uid]
	if !ok {
		return Entry{}, false
	}
	return s.entries[at], true
}

// LastEvicted returns the time of the newest entry that was evicted, or zero.
func (s *Store) LastEvicted() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lastEvicted
}

// Entries returns the stored entries from old to new: all if uid is "", otherwise those
// of one object.
func (s *Store) Entries(uid types.UID) []Entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []Entry
	for i := range s.entries {
		e := s.entries[(s.next+i)%len(s.entries)]
		if uid == "" || e.Object.UID == uid {
			found = append(found, e)
		}
	}
	return found
}
