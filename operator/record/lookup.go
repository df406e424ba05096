package record

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// A Reader calls yield for the stored entries of a period, oldest first, until that returns false. An
// empty uid means all objects; zero times mean no limit.
type Reader func(ctx context.Context, uid types.UID, since, before time.Time, yield func(Entry) bool) error

// A Lookup finds the deletions of owners. Its zero value finds none.
type Lookup struct {
	Entries Reader

	// Max is the maximum number of objects that are looked up. It counts down.
	Max int

	known map[types.UID]Entry // the zero Entry: there is none
}

// maxScanned is the maximum number of entries of one owner that are read to find its deletion.
const maxScanned = 1000

// Extend continues the chain of an entry: the deletions of owners from before a restart are not in
// memory, but stored. What can't be read, or not within Max, leaves the chain as it is.
func (l *Lookup) Extend(ctx context.Context, e Entry) Entry {
	if l.Entries == nil || e.ChainEnds() {
		return e
	}
	return e.ExtendChain(func(uid types.UID) (Entry, bool) {
		deletion, ok := l.deletionOf(ctx, uid)
		return deletion, ok && !deletion.Time.After(e.Time)
	})
}

func (l *Lookup) deletionOf(ctx context.Context, uid types.UID) (Entry, bool) {
	if e, ok := l.known[uid]; ok {
		return e, e.Object.UID != ""
	}
	if l.Max <= 0 || uid == "" || ctx.Err() != nil {
		return Entry{}, false
	}
	l.Max--
	var found Entry
	n := 0
	err := l.Entries(ctx, uid, time.Time{}, time.Time{}, func(e Entry) bool {
		if e.Deleted() && e.Object.UID == uid {
			found = e.WithoutExchanges()
		}
		n++
		return n < maxScanned
	})
	if err != nil && found.Object.UID == "" {
		return found, false
	}
	if l.known == nil {
		l.known = map[types.UID]Entry{}
	}
	l.known[uid] = found
	return found, found.Object.UID != ""
}
