package segment

import (
	"crypto/sha256"
	"encoding/binary"
)

const (
	bitsPerUID = 10 // one in a hundred UIDs is found although it is not there
	hashes     = 7
	maxFilter  = 16 << 10 // bytes; above 13,000 UIDs, more are found
)

// uidFilter is a Bloom filter of UIDs. Nil: it is not known which there are.
type uidFilter []byte

func uidsOfRecords(records []Record) uidFilter {
	uids := map[string]struct{}{}
	for _, r := range records {
		uids[string(r.UID)] = struct{}{}
	}
	return newUIDFilter(uids)
}

// uidsOfEntries is also of the roots of their cascades.
func uidsOfEntries(entries []Entry) uidFilter {
	uids := map[string]struct{}{}
	for _, e := range entries {
		uids[string(e.Object.UID)] = struct{}{}
		uids[string(e.Cause.Root)] = struct{}{}
	}
	return newUIDFilter(uids)
}

func newUIDFilter(uids map[string]struct{}) uidFilter {
	if len(uids) == 0 {
		return nil
	}
	f := make(uidFilter, min((len(uids)*bitsPerUID+7)/8, maxFilter))
	for uid := range uids {
		for _, bit := range f.positions(uid) {
			f[bit/8] |= 1 << (bit % 8)
		}
	}
	return f
}

// mayHave reports whether a UID may be among those that the filter was made of.
func (f uidFilter) mayHave(uid string) bool {
	if len(f) == 0 {
		return true
	}
	for _, bit := range f.positions(uid) {
		if f[bit/8]&(1<<(bit%8)) == 0 {
			return false
		}
	}
	return true
}

func (f uidFilter) positions(uid string) (bits [hashes]uint32) {
	sum := sha256.Sum256([]byte(uid))
	for i := range bits {
		bits[i] = binary.BigEndian.Uint32(sum[4*i:]) % uint32(8*len(f)) //nolint:gosec // at most maxFilter
	}
	return bits
}
