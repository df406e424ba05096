package filestore

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"time"

	"go.etcd.io/bbolt"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/operator/archive"
	"github.com/gleaner-dev/gleaner/operator/archive/codec"
)

// The buckets. Keys of indexes end in the ID of an entry, or in the key of a record.
var (
	metaBucket      = []byte("meta")        // formatKey, usageKey
	headersBucket   = []byte("headers")     // ID: header
	bodiesBucket    = []byte("bodies")      // digest: body
	contentsBucket  = []byte("contents")    // digest, ID: which entries have a body
	uidBucket       = []byte("uids")        // UID, 0, ID
	rootBucket      = []byte("roots")       // UID of the root, 0, ID
	placeBucket     = []byte("places")      // group, 0, kind, 0, namespace, 0, name, 0, ID
	expiryBucket    = []byte("expiry")      // time, ID
	recordsBucket   = []byte("records")     // time, sequence: record
	recordUIDBucket = []byte("record-uids") // UID, 0, time, sequence

	buckets = [][]byte{
		metaBucket, headersBucket, bodiesBucket, contentsBucket, uidBucket, rootBucket, placeBucket, expiryBucket, recordsBucket, recordUIDBucket,
	}

	formatKey = []byte("format")
	usageKey  = []byte("usage")
)

const (
	idSize        = 16
	digestSize    = 32
	recordKeySize = 16
	appendFill    = 0.9 // of pages whose keys only ascend
)

// tables are the buckets in a transaction.
type tables struct {
	meta, headers, bodies, contents, uids, roots, places, expiry, records, recordUIDs *bbolt.Bucket
}

func tablesOf(tx *bbolt.Tx) (tables, error) {
	for _, name := range buckets {
		if tx.Bucket(name) == nil {
			return tables{}, fmt.Errorf("%w: bucket %s is missing", archive.ErrCorrupt, name)
		}
	}
	t := tables{
		meta: tx.Bucket(metaBucket), headers: tx.Bucket(headersBucket), bodies: tx.Bucket(bodiesBucket), contents: tx.Bucket(contentsBucket),
		uids: tx.Bucket(uidBucket), roots: tx.Bucket(rootBucket), places: tx.Bucket(placeBucket), expiry: tx.Bucket(expiryBucket),
		records: tx.Bucket(recordsBucket), recordUIDs: tx.Bucket(recordUIDBucket),
	}
	for _, b := range []*bbolt.Bucket{t.headers, t.expiry, t.records} {
		b.FillPercent = appendFill
	}
	return t, nil
}

// usage is what the store holds, kept with each transaction.
type usage struct{ entries, records, bytes int64 }

func (t tables) usage() (usage, error) {
	stored := t.meta.Get(usageKey)
	if stored == nil {
		return usage{}, nil
	}
	value, err := codec.Verified(stored)
	if err != nil {
		return usage{}, fmt.Errorf("read usage: %w", err)
	}
	if len(value) != 24 {
		return usage{}, fmt.Errorf("read usage: %w: it has %d bytes", archive.ErrCorrupt, len(value))
	}
	number := func(i int) int64 { return int64(binary.BigEndian.Uint64(value[i*8:])) }
	return usage{number(0), number(1), number(2)}, nil
}

func (t tables) setUsage(u usage) error {
	var value []byte
	for _, n := range []int64{u.entries, u.records, u.bytes} {
		value = binary.BigEndian.AppendUint64(value, uint64(n))
	}
	return t.meta.Put(usageKey, codec.WithChecksum(value))
}

// indexed is an entry's key in an index.
type indexed struct {
	index *bbolt.Bucket
	key   []byte
}

// indexes returns the keys under which an entry is found.
func (t tables) indexes(h archive.Header) ([]indexed, error) {
	id, digest, err := keysOf(h)
	if err != nil {
		return nil, err
	}
	gk := h.Object.GroupKind()
	keys := []indexed{
		{t.contents, append(digest, id...)},
		{t.uids, append(uidPrefix(h.Object.UID), id...)},
		{t.places, append(placePrefix(gk, h.Object.Namespace, h.Object.Name), id...)},
	}
	if h.Cause.Root != "" {
		keys = append(keys, indexed{t.roots, append(uidPrefix(h.Cause.Root), id...)})
	}
	if !h.Expires.IsZero() {
		keys = append(keys, indexed{t.expiry, append(timeKey(h.Expires), id...)})
	}
	return keys, nil
}

func keysOf(h archive.Header) (id, digest []byte, err error) {
	if id, err = hex.DecodeString(h.ID); err != nil || len(id) != idSize {
		return nil, nil, fmt.Errorf("ID %q is not one", h.ID)
	}
	if digest, err = digestKey(h.Content); err != nil {
		return nil, nil, err
	}
	return id, digest, nil
}

func digestKey(d archive.Digest) ([]byte, error) {
	raw, err := hex.DecodeString(string(d))
	if err != nil || len(raw) != digestSize {
		return nil, fmt.Errorf("digest %q is not one", d)
	}
	return raw, nil
}

func uidPrefix(uid types.UID) []byte { return append([]byte(uid), 0) }

func placePrefix(gk schema.GroupKind, namespace, name string) []byte {
	return fmt.Appendf(nil, "%s\x00%s\x00%s\x00%s\x00", gk.Group, gk.Kind, namespace, name)
}

// timeKey orders as time does. Times before 1970 are the lowest.
func timeKey(t time.Time) []byte {
	raw, _ := hex.DecodeString(archive.IDPrefix(t)) // is hexadecimal
	return raw
}
