// Package record keeps what was decided, and why: one entry for each decision,
// a bounded number of them.
//
// From the entries it answers the question that Kubernetes leaves open: why
// was this object deleted, or why is it still here (defect 3.24).
package record

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/operator/decide"
	"github.com/gleaner-dev/gleaner/operator/graph"
)

// Object names an object in an entry.
type Object struct {
	APIVersion      string    `json:"apiVersion"`
	Kind            string    `json:"kind"`
	Namespace       string    `json:"namespace,omitempty"`
	Name            string    `json:"name"`
	UID             types.UID `json:"uid"`
	ResourceVersion string    `json:"resourceVersion,omitempty"`
}

// String returns Kind namespace/name.
func (o Object) String() string {
	if o.Namespace == "" {
		return o.Kind + " " + o.Name
	}
	return fmt.Sprintf("%s %s/%s", o.Kind, o.Namespace, o.Name)
}

// ObjectOf names a graph object.
func ObjectOf(o graph.Object) Object {
	apiVersion, kind := o.Kind.ToAPIVersionAndKind()
	return Object{APIVersion: apiVersion, Kind: kind, Namespace: o.Namespace, Name: o.Name, UID: o.UID, ResourceVersion: o.ResourceVersion}
}

// Owner is one of the object's owner references and how it stood.
type Owner struct {
	Object   Object `json:"object"`
	Standing string `json:"standing"`
	Because  string `json:"because,omitempty"`
}

// OwnersOf names the owners among the facts of a decision. They are looked for
// in the object's own namespace.
func OwnersOf(f decide.Facts) []Owner {
	owners := make([]Owner, 0, len(f.Owners))
	for _, o := range f.Owners {
		ref := o.Reference
		owners = append(owners, Owner{
			Object:   Object{APIVersion: ref.APIVersion, Kind: ref.Kind, Namespace: f.Object.Namespace, Name: ref.Name, UID: ref.UID},
			Standing: o.Standing.String(),
			Because:  o.Reason,
		})
	}
	return owners
}

// Blocker is an object that another one's deletion waits for, and why it takes
// its time.
type Blocker struct {
	Object Object `json:"object"`
	State  string `json:"state"`
}

// BlockersOf names some of the objects that a deletion waits for.
func BlockersOf(f decide.Facts) []Blocker {
	var blockers []Blocker
	for _, b := range f.Blockers {
		apiVersion, kind := b.Object.Kind.ToAPIVersionAndKind()
		state := "not being deleted yet"
		switch {
		case b.Held:
			state = "being deleted, and held by its finalizers"
		case b.Terminating:
			state = "being deleted"
		}
		blockers = append(blockers, Blocker{State: state, Object: Object{
			APIVersion: apiVersion, Kind: kind, Namespace: b.Object.Namespace, Name: b.Object.Name, UID: b.Object.UID,
		}})
	}
	return blockers
}

// Action is what was decided to be done, as a word.
type Action string

// The actions of entries.
const (
	None            Action = "None"
	Delete          Action = "Delete"
	Propagate       Action = "Propagate"
	DropReferences  Action = "DropOwnerReferences"
	RemoveFinalizer Action = "RemoveFinalizer"
	AddFinalizer    Action = "AddFinalizer"
	Unblock         Action = "UnblockOwner"
	Remember        Action = "Remember"
	Forget          Action = "Forget"
)

// ActionOf returns the word for an action, and what there is to say about how
// it is done: the propagation policy, the references or the finalizer.
func ActionOf(action decide.Action) (Action, string) {
	switch a := action.(type) {
	case decide.Delete:
		return Delete, string(a.Propagation)
	case decide.Propagate:
		return Propagate, string(a.Propagation)
	case decide.DropReferences:
		names := make([]string, 0, len(a.References))
		for _, ref := range a.References {
			names = append(names, ref.Kind+" "+ref.Name)
		}
		return DropReferences, strings.Join(names, ", ")
	case decide.RemoveFinalizer:
		return RemoveFinalizer, a.Finalizer
	case decide.AddFinalizer:
		return AddFinalizer, a.Finalizer
	case decide.Unblock:
		return Unblock, ObjectOf(a.Object).String()
	case decide.Remember:
		if p := a.Memo.Propagation; p != nil {
			return Remember, "its dependents are to go by " + p.Decision
		}
		return Remember, "without an owner since " + a.Memo.OwnerlessSince.Format(time.RFC3339)
	case decide.Forget:
		return Forget, ""
	default:
		return None, ""
	}
}

// Entry is one decision and what became of it.
type Entry struct {
	Time     time.Time     `json:"time"`
	Object   Object        `json:"object"`
	Reason   decide.Reason `json:"reason"`
	Action   Action        `json:"action"`
	How      string        `json:"how,omitempty"`
	Result   string        `json:"result,omitempty"`
	Error    string        `json:"error,omitempty"`
	Owners   []Owner       `json:"owners,omitempty"`
	Policy   string        `json:"policy,omitempty"` // whose verdict or fault it goes by, if one was asked
	Asked    []Asked       `json:"asked,omitempty"`  // all that were, in order
	Until    *time.Time    `json:"until,omitempty"`  // when it is looked at again
	Because  string        `json:"because,omitempty"`
	Duration time.Duration `json:"durationNanoseconds"`

	// WaitsFor names some of the dependents that hold the object up, if any do,
	// and Blocking is how many there are (defect 3.29).
	WaitsFor []Blocker `json:"waitsFor,omitempty"`
	Blocking int       `json:"blocking,omitempty"`

	// Chain is why, from the object upwards: each link's owner was deleted for
	// the reason that the next one tells.
	Chain []Link `json:"chain,omitempty"`
}

// Asked is a policy that was asked, and what it said.
type Asked struct {
	Policy     string `json:"policy"`
	Generation int64  `json:"generation"`
	Mode       string `json:"mode"` // Monitor: what it said changed nothing
	Module     string `json:"module,omitempty"`
	Digest     string `json:"digest,omitempty"`
	Decision   string `json:"decision,omitempty"`
	Reason     string `json:"reason,omitempty"` // as the policy gave it
	Fault      string `json:"fault,omitempty"`
	Fuel       int64  `json:"fuel,omitempty"`
	Rounds     int    `json:"rounds,omitempty"`
	Duration   int64  `json:"durationNanoseconds"`
}

// says returns what a policy said in a few words.
func (a Asked) says() string {
	said := a.Decision
	switch {
	case a.Fault != "":
		said = "is at fault: " + a.Fault
	case a.Reason != "":
		said += " (" + a.Reason + ")"
	}
	if a.Mode == "Monitor" {
		said += " [Monitor: without effect]"
	}
	return a.Policy + ": " + said
}

// Link is one step of an owner chain.
type Link struct {
	Owner   Owner  `json:"owner"`
	Deleted string `json:"deleted,omitempty"` // why, if it was by us
}

// String tells the decision and its chain as one sentence.
func (e Entry) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s", e.Object, e.did())
	if e.Result != "" && e.Result != done {
		fmt.Fprintf(&b, " [%s]", e.Result)
	}
	if len(e.Chain) == 0 {
		fmt.Fprintf(&b, ", %s", e.Reason)
	}
	for _, asked := range e.Asked {
		fmt.Fprintf(&b, ", %s", asked.says())
	}
	for _, blocker := range e.WaitsFor {
		fmt.Fprintf(&b, ", waits for %s (%s)", blocker.Object, blocker.State)
	}
	if more := e.Blocking - len(e.WaitsFor); more > 0 && len(e.WaitsFor) != 0 {
		fmt.Fprintf(&b, " and %d more", more)
	}
	for _, link := range e.Chain {
		fmt.Fprintf(&b, ", since %s is %s", link.Owner.Object, strings.ToLower(link.Owner.Standing))
		if link.Owner.Because != "" {
			fmt.Fprintf(&b, " (%s)", link.Owner.Because)
		}
	}
	return b.String()
}

// did says what was decided, as a past participle.
func (e Entry) did() string {
	switch e.Action {
	case Delete:
		return "deleted (" + e.How + ")"
	case Propagate:
		return "dependents to go by " + e.How
	case DropReferences:
		return "reference to " + e.How + " dropped"
	case RemoveFinalizer:
		return "finalizer " + e.How + " removed"
	case AddFinalizer:
		return "finalizer " + e.How + " added"
	case Unblock:
		return "owner of " + e.How + " unblocked"
	case Remember:
		return "kept for now, " + e.How
	case Forget:
		return "memo removed"
	default:
		return "left as it is"
	}
}

// Results of actions that make a difference here: what was done, and what was
// decided and not done, which is decided again at every look.
const (
	done   = "Done"
	dryRun = "DryRun"
)

// longestChain bounds a chain, which ends anyway unless owners own each other.
const longestChain = 16

// Store keeps the newest entries. Its methods may be called concurrently.
type Store struct {
	mu      sync.Mutex // covers what follows
	entries []Entry    // a ring; next is the oldest once it is full
	next    int
	latest  map[types.UID]int // each object's newest entry
	deletes map[types.UID]int // each object's newest entry that deletes it
}

// NewStore returns a Store of at most size entries.
func NewStore(size int) *Store {
	return &Store{entries: make([]Entry, 0, size), latest: map[types.UID]int{}, deletes: map[types.UID]int{}}
}

// Add completes an entry with its chain and keeps it. It reports false, and
// keeps nothing, if it says just what the object's newest entry says and
// nothing was done: being stuck is one decision, not one for each look.
func (s *Store) Add(e Entry) (Entry, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	repeated := e.Action == None || e.Result == dryRun
	if at, ok := s.latest[e.Object.UID]; ok && repeated && same(s.entries[at], e) {
		return s.entries[at], false
	}
	e.Chain = s.chain(e)
	at := len(s.entries)
	if at < cap(s.entries) {
		s.entries = append(s.entries, e)
	} else {
		at = s.next
		s.next = (s.next + 1) % len(s.entries)
		s.forget(at)
		s.entries[at] = e
	}
	s.latest[e.Object.UID] = at
	if e.Action == Delete && e.Result == done {
		s.deletes[e.Object.UID] = at
	}
	return e, true
}

// forget takes the entry at a place out of the indexes.
func (s *Store) forget(at int) {
	uid := s.entries[at].Object.UID
	for _, index := range []map[types.UID]int{s.latest, s.deletes} {
		if place, ok := index[uid]; ok && place == at {
			delete(index, uid)
		}
	}
}

func same(a, b Entry) bool {
	if a.Action != b.Action || a.Result != b.Result || a.How != b.How || a.Reason != b.Reason || a.Because != b.Because {
		return false
	}
	return slices.Equal(a.Owners, b.Owners) && slices.Equal(a.WaitsFor, b.WaitsFor) &&
		slices.EqualFunc(a.Asked, b.Asked, sameAnswer)
}

// sameAnswer reports whether a policy said the same twice, however long it took.
func sameAnswer(a, b Asked) bool {
	a.Duration, a.Fuel = b.Duration, b.Fuel
	return a == b
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
