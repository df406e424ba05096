package debug

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/gleaner-dev/gleaner/operator/record"
)

// Limits of one page of records. A page ends at the first that it reaches, and says where the next
// begins.
const (
	maxPageScanned = 20_000          // stored entries that are read
	maxPageBytes   = 8 << 20         // approximate size of stored entries
	maxPageTime    = 4 * time.Second // less than clients wait
	maxSameTime    = 100_000         // entries of the same time, at which no page can end
	maxPageLookups = 200             // owners whose deletions are looked up

	// entryBytes is the approximate size of an entry without transcripts and owners.
	entryBytes, ownerBytes = 1024, 256
)

// A recordPage is what was read for a page, before it is known what the client may see.
type recordPage struct {
	entries    []record.Entry // oldest first
	next       *time.Time     // the start of the next page; nil: this is the last one
	incomplete string
}

// readPage reads the entries in memory, and those that are stored.
func (s Source) readPage(ctx context.Context, q recordQuery) recordPage {
	ctx, cancel := context.WithTimeout(ctx, maxPageTime)
	defer cancel()
	var p recordPage
	stored := s.Stored != nil && (q.paged || q.Object.UID != "")
	if stored {
		p = s.readStored(ctx, q)
	}
	known := make(map[string]struct{}, len(p.entries))
	for _, e := range p.entries {
		known[e.Key()] = struct{}{}
	}
	for _, e := range s.Records(q.Object.UID) {
		if _, is := known[e.Key()]; !is && q.inPeriod(e.Time, p.next) && q.MayMatch(e) {
			p.entries = append(p.entries, e)
		}
	}
	slices.SortStableFunc(p.entries, func(a, b record.Entry) int { return a.Time.Compare(b.Time) })
	if q.paged {
		p.cut(q.limit)
	}
	if s.Stored != nil && q.NeedsChain() {
		lookup := record.Lookup{Entries: s.Stored, Max: maxPageLookups}
		for i, e := range p.entries {
			p.entries[i] = lookup.Extend(ctx, e)
		}
	}
	return p
}

// inPeriod reports whether a time is in the period of a page that ends before a time.
func (q recordQuery) inPeriod(t time.Time, end *time.Time) bool {
	return (q.since.IsZero() || !t.Before(q.since)) && (q.before.IsZero() || t.Before(q.before)) && (end == nil || t.Before(*end))
}

// readStored reads stored entries until a limit is reached. Pages end between entries of different
// times, so that the next one begins with the first that is not on this one.
func (s Source) readStored(ctx context.Context, q recordQuery) (p recordPage) {
	scanned, size := 0, 0
	var last time.Time
	err := s.Stored(ctx, q.Object.UID, q.since, q.before, func(e record.Entry) bool {
		full := scanned >= maxPageScanned || size >= maxPageBytes || len(p.entries) >= q.limit && q.paged
		if full && (e.Time.After(last) || scanned >= maxSameTime) {
			p.next = &e.Time
			return false
		}
		scanned, last = scanned+1, e.Time
		if q.MayMatch(e) {
			if !q.exchanges {
				e = e.WithoutExchanges()
			}
			size += entryBytes + ownerBytes*(len(e.Owners)+len(e.Chain)) + e.TranscriptSize()
			p.entries = append(p.entries, e)
		}
		return true
	})
	switch {
	case p.next != nil || err == nil:
	case ctx.Err() != nil && last.After(q.since):
		p.next = &last // entries of that time may be missing, and are on the next page
		p.entries = slices.DeleteFunc(p.entries, func(e record.Entry) bool { return !e.Time.Before(last) })
	default:
		p.incomplete = fmt.Sprintf("read stored records: %v", err)
	}
	return p
}

// cut ends the page after some entries, and all others of the same time as the last.
func (p *recordPage) cut(limit int) {
	if len(p.entries) <= limit {
		return
	}
	end := limit
	for end < len(p.entries) && p.entries[end].Time.Equal(p.entries[limit-1].Time) {
		end++
	}
	if end < len(p.entries) {
		p.next = &p.entries[end].Time
		p.entries = p.entries[:end:end]
	}
}

// recordsSince returns the start of the records that a query selects from: of those in memory, or of
// those that are stored, if they begin earlier.
func (s Source) recordsSince(ctx context.Context, q recordQuery) *time.Time {
	if s.RecordsSince == nil {
		return nil
	}
	since := s.RecordsSince()
	if since.IsZero() {
		return nil
	}
	if s.Stored != nil && (q.paged || q.Object.UID != "") {
		ctx, cancel := context.WithTimeout(ctx, maxPageTime/4)
		defer cancel()
		_ = s.Stored(ctx, "", time.Time{}, since, func(e record.Entry) bool { // what can't be read is Incomplete
			since = e.Time
			return false
		})
	}
	return &since
}
