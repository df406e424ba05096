package record

import (
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/operator/decide"
)

// Results of actions that make a difference here: what was done, and what was
// decided and not done, which is decided again at every look.
const (
	done   = "Done"
	dryRun = "DryRun"
)

// longestChain bounds a chain, which ends anyway unless owners own each other.
const longestChain = 16

// Bounds are those of a Store. Its entries are bounded by number; what modules are
// shown is bounded by nothing, so their transcripts are bounded by their size.
type Bounds struct {
	Entries     int // 0: DefaultEntries
	Transcripts int // bytes, about; 0: DefaultTranscripts, and less than 0 for none
}

// What an operator keeps if nothing else is said.
const (
	DefaultEntries     = 10_000
	DefaultTranscripts = 32 << 20
)

// Store keeps the newest entries. Its methods may be called concurrently.
type Store struct {
	bounds Bounds

	mu      sync.Mutex // covers what follows
	entries []Entry    // a ring; next is the oldest once it is full
	next    int
	latest  map[topic]int     // each object's newest entry, by what it is about
	deletes map[types.UID]int // each object's newest entry that deletes it

	forgotten time.Time // of the newest entry that had to make room

	transcripts []transcripts // of the entries that have any, from old to new
	bytes       int           // of them all
}

// transcripts are those of one entry.
type transcripts struct{ at, size int }

// NewStore returns a Store without entries.
func NewStore(b Bounds) *Store {
	if b.Entries == 0 {
		b.Entries = DefaultEntries
	}
	if b.Transcripts == 0 {
		b.Transcripts = DefaultTranscripts
	}
	b.Transcripts = max(b.Transcripts, 0)
	return &Store{bounds: b, latest: map[topic]int{}, deletes: map[types.UID]int{}}
}

// Size is how many entries are kept, and about how many bytes of transcripts with them.
func (s *Store) Size() (entries, transcripts int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.entries), s.bytes
}

// Add completes an entry with its chain and keeps it. It reports false, and
// keeps nothing, if it says just what the object's newest entry says and
// nothing was done: being stuck is one decision, not one for each look.
func (s *Store) Add(e Entry) (Entry, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	repeated := e.Action == None || e.Result == dryRun
	if at, ok := s.latest[topicOf(e)]; ok && repeated && same(s.entries[at], e) {
		return s.entries[at], false
	}
	e.Chain = s.chain(e)
	at := len(s.entries)
	if at < s.bounds.Entries {
		s.entries = append(s.entries, e)
	} else {
		at = s.next
		s.next = (s.next + 1) % len(s.entries)
		s.forget(at)
		s.entries[at] = e
	}
	s.keepTranscripts(at)
	s.latest[topicOf(e)] = at
	if e.Action == Delete && e.Result == done {
		s.deletes[e.Object.UID] = at
	}
	return e, true
}

// forget takes the entry at a place, which is the oldest, out of the indexes.
func (s *Store) forget(at int) {
	if len(s.transcripts) != 0 && s.transcripts[0].at == at {
		s.dropOldest()
	}
	s.forgotten = s.entries[at].Time
	about, uid := topicOf(s.entries[at]), s.entries[at].Object.UID
	if place, ok := s.latest[about]; ok && place == at {
		delete(s.latest, about)
	}
	if place, ok := s.deletes[uid]; ok && place == at {
		delete(s.deletes, uid)
	}
}

// topic is what entries about one object are about: its owners, or one of its
// finalizers. What is said of one does not make what is said of another new.
type topic struct {
	uid       types.UID
	finalizer string
}

func topicOf(e Entry) topic {
	t := topic{uid: e.Object.UID}
	if e.Action == None {
		t.finalizer = e.How
	}
	return t
}

func same(a, b Entry) bool {
	if a.Action != b.Action || a.Result != b.Result || a.How != b.How || a.Reason != b.Reason || a.Because != b.Because {
		return false
	}
	if len(b.Asked) == 0 && len(b.Intents) == 0 { // nobody was asked again, since it is known what they say
		return slices.Equal(a.Owners, b.Owners) && slices.Equal(a.WaitsFor, b.WaitsFor)
	}
	return slices.Equal(a.Owners, b.Owners) && slices.Equal(a.WaitsFor, b.WaitsFor) && slices.Equal(a.Intents, b.Intents) &&
		slices.EqualFunc(a.Asked, b.Asked, sameAnswer)
}

// sameAnswer reports whether a policy said the same twice, whatever it was shown
// and however long it took.
func sameAnswer(a, b Asked) bool {
	return a.Policy == b.Policy && a.Generation == b.Generation && a.Mode == b.Mode && a.Module == b.Module &&
		a.Digest == b.Digest && a.Decision == b.Decision && a.Reason == b.Reason && a.Fault == b.Fault && a.Rounds == b.Rounds
}

// chain follows the owners that an object lost to the decisions that they were
// deleted by.
func (s *Store) chain(e Entry) []Link {
	var chain []Link
	for len(chain) < longestChain {
		lost, ok := e.lost()
		if !ok {
			return chain
		}
		link := Link{Owner: lost}
		if at, ok := s.deletes[lost.Object.UID]; ok {
			e = s.entries[at]
			link.Deleted = string(e.Reason)
		}
		chain = append(chain, link)
		if link.Deleted == "" {
			return chain
		}
	}
	return chain
}

// lost returns the first owner that the decision was about; an owner that goes
// last is not let go on account of its own.
func (e Entry) lost() (Owner, bool) {
	if e.Action == RemoveFinalizer || e.Action == Unblock {
		return Owner{}, false
	}
	for _, o := range e.Owners {
		if o.Standing != decide.Present.String() {
			return o, true
		}
	}
	return Owner{}, false
}

// Forgotten is the time of the newest entry that had to make room; zero if none has.
func (s *Store) Forgotten() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.forgotten
}

// Entries returns the kept entries from old to new: those of one object if uid
// is not "".
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
