package codec

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gleaner-dev/gleaner/operator/archive"
)

var testTime = time.Date(2026, 5, 1, 12, 0, 0, 123, time.UTC)

func header() archive.Header {
	return archive.Header{
		ID: "00", Time: testTime, Policies: []string{"ArchivePolicy shop/all"}, Size: 3,
		Object: archive.Reference{APIVersion: "v1", Kind: "ConfigMap", Namespace: "shop", Name: "settings", UID: "u"},
		Owners: []archive.Reference{{APIVersion: "apps/v1", Kind: "Deployment", Namespace: "shop", Name: "web", UID: "o"}},
		Cause:  archive.Cause{By: archive.ByGleaner, Root: "r"}, Expires: testTime.Add(time.Hour),
	}
}

func encoded(t testing.TB) (header1, record1 []byte) {
	t.Helper()
	h, err := EncodeHeader(header())
	if err != nil {
		t.Fatal(err)
	}
	r, err := EncodeRecord(record())
	if err != nil {
		t.Fatal(err)
	}
	return h, r
}

func record() archive.Record {
	return archive.Record{Time: testTime, UID: "u", JSON: []byte(`{"reason":"AllOwnersDeleted"}`)}
}

func TestDecode_ReturnsWhatWasEncoded(t *testing.T) {
	h, r := encoded(t)
	gotHeader, err := DecodeHeader(h)
	if diff := cmp.Diff(header(), gotHeader); diff != "" || err != nil {
		t.Errorf("header (-want +got):\n%s%v", diff, err)
	}
	gotRecord, err := DecodeRecord(r)
	if diff := cmp.Diff(record(), gotRecord); diff != "" || err != nil {
		t.Errorf("record (-want +got):\n%s%v", diff, err)
	}
	empty, err := EncodeRecord(archive.Record{Time: testTime})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := DecodeRecord(empty); err != nil || len(got.JSON) != 0 || got.UID != "" {
		t.Errorf("%v, %v, want an empty record", got, err)
	}
}

func TestDecode_EveryFlippedBitIsCorrupt(t *testing.T) {
	h, r := encoded(t)
	for bit := range len(h) * 8 {
		flipped := bytes.Clone(h)
		flipped[bit/8] ^= 1 << (bit % 8)
		if _, err := DecodeHeader(flipped); !errors.Is(err, archive.ErrCorrupt) {
			t.Fatalf("bit %d of a header: error %v, want ErrCorrupt", bit, err)
		}
	}
	for bit := range len(r) * 8 {
		flipped := bytes.Clone(r)
		flipped[bit/8] ^= 1 << (bit % 8)
		if _, err := DecodeRecord(flipped); !errors.Is(err, archive.ErrCorrupt) {
			t.Fatalf("bit %d of a record: error %v, want ErrCorrupt", bit, err)
		}
	}
	for n := range h {
		if _, err := DecodeHeader(h[:n]); !errors.Is(err, archive.ErrCorrupt) {
			t.Fatalf("%d bytes of a header: error %v, want ErrCorrupt", n, err)
		}
	}
}

func FuzzDecode(f *testing.F) {
	h, r := encoded(f)
	f.Add(h[sumLength:])
	f.Add(r[sumLength:])
	f.Add([]byte{plain, 0, 0})
	f.Fuzz(func(t *testing.T, payload []byte) {
		data := WithChecksum(payload) // otherwise hardly anything passes
		if _, err := DecodeHeader(data); err != nil && !errors.Is(err, archive.ErrCorrupt) && !errors.Is(err, archive.ErrTooLarge) {
			t.Errorf("header: error %v has no kind", err)
		}
		r, err := DecodeRecord(data)
		if err != nil {
			if !errors.Is(err, archive.ErrCorrupt) && !errors.Is(err, archive.ErrTooLarge) {
				t.Errorf("record: error %v has no kind", err)
			}
			return
		}
		again, err := EncodeRecord(r)
		if err != nil {
			t.Fatal(err)
		}
		got, err := DecodeRecord(again)
		if diff := cmp.Diff(r, got); diff != "" || err != nil {
			t.Errorf("record (-want +got):\n%s%v", diff, err)
		}
	})
}
