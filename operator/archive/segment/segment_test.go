package segment

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gleaner-dev/gleaner/operator/archive"
	"github.com/gleaner-dev/gleaner/operator/archive/archivetest"
	"github.com/gleaner-dev/gleaner/operator/archive/codec"
)

var testTime = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

func build(t testing.TB) ([]byte, Footer, []Entry, []Record) {
	t.Helper()
	var entries []Entry
	for i, content := range []string{"a", "b", "a"} {
		e := archivetest.EntryOf(t, i%2, content, archive.Header{Expires: testTime.Add(time.Duration(i) * time.Hour)})
		encoded, err := codec.EncodeHeader(e.Header)
		if err != nil {
			t.Fatal(err)
		}
		entries = append(entries, Entry{e, encoded})
	}
	var records []Record
	for i := range 2 {
		r := archive.Record{Time: testTime.Add(time.Duration(i) * time.Minute), UID: "u", JSON: []byte("{}")}
		encoded, err := codec.EncodeRecord(r)
		if err != nil {
			t.Fatal(err)
		}
		records = append(records, Record{r, encoded})
	}
	data, f, err := Build(Footer{Epoch: 3, Nonce: "n", Replaces: []uint64{1, 2}, Horizons: []Horizon{{Segment: 4, Expired: testTime}}}, entries, records)
	if err != nil {
		t.Fatal(err)
	}
	return data, f, entries, records
}

func TestRead_ReturnsWhatWasBuilt(t *testing.T) {
	data, want, entries, records := build(t)
	f, err := ReadFooter(data, int64(len(data)))
	if diff := cmp.Diff(want, f); diff != "" || err != nil {
		t.Fatalf("footer (-want +got):\n%s%v", diff, err)
	}
	if f.Entries != 3 || f.Records != 2 || f.MinID != entries[0].ID || f.MaxID != entries[1].ID ||
		!f.MinExpires.Equal(testTime) || !f.MinRecord.Equal(testTime) || !f.MaxRecord.Equal(testTime.Add(time.Minute)) {
		t.Errorf("footer %+v", f)
	}
	rows, err := ReadHeaders(data[f.HeadersAt:f.RecordsAt], f)
	if err != nil || len(rows) != 3 {
		t.Fatalf("%d rows, %v", len(rows), err)
	}
	for i, row := range rows {
		if diff := cmp.Diff(entries[i].Header, row.Header); diff != "" || row.Err != nil {
			t.Errorf("header (-want +got):\n%s%v", diff, row.Err)
		}
		if !bytes.Equal(data[row.Offset:row.Offset+row.Size], entries[i].Body) {
			t.Errorf("body %d differs", i)
		}
	}
	if rows[0].Offset != rows[2].Offset {
		t.Error("equal bodies are stored twice")
	}
	got, err := ReadRecords(data[f.RecordsAt:f.FooterAt])
	if err != nil || len(got) != 2 || !cmp.Equal(got[1].Record, records[1].Record) {
		t.Errorf("records %v, %v", got, err)
	}
}

func TestReadFooter_FlippedBitsAndTruncation(t *testing.T) {
	data, f, _, _ := build(t)
	for bit := int(f.FooterAt) * 8; bit < len(data)*8; bit++ {
		flipped := bytes.Clone(data)
		flipped[bit/8] ^= 1 << (bit % 8)
		if _, err := ReadFooter(flipped, int64(len(data))); !errors.Is(err, archive.ErrCorrupt) {
			t.Fatalf("bit %d: error %v, want ErrCorrupt", bit, err)
		}
	}
	for n := range data {
		if _, err := ReadFooter(data[:n], int64(n)); !errors.Is(err, archive.ErrCorrupt) {
			t.Fatalf("%d bytes: error %v, want ErrCorrupt", n, err)
		}
	}
}

// TestReadRows_FlippedBits: what is returned was built, and the rest is corrupt.
func TestReadRows_FlippedBits(t *testing.T) {
	data, f, entries, records := build(t)
	headers, recorded := map[string]archive.Header{}, map[time.Time]archive.Record{}
	for _, e := range entries {
		headers[e.ID] = e.Header
	}
	for _, r := range records {
		recorded[r.Time] = r.Record
	}
	for bit := int(f.HeadersAt) * 8; bit < int(f.FooterAt)*8; bit++ {
		flipped := bytes.Clone(data)
		flipped[bit/8] ^= 1 << (bit % 8)
		corrupt := 0
		rows, err := ReadHeaders(flipped[f.HeadersAt:f.RecordsAt], f)
		if err != nil {
			corrupt++
		}
		for _, row := range rows {
			if row.Err != nil {
				corrupt++
			} else if !cmp.Equal(row.Header, headers[row.Header.ID]) {
				t.Fatalf("bit %d: header %+v was not built", bit, row.Header)
			}
		}
		read, err := ReadRecords(flipped[f.RecordsAt:f.FooterAt])
		if err != nil {
			corrupt++
		}
		for _, row := range read {
			if row.Err != nil {
				corrupt++
			} else if !cmp.Equal(row.Record, recorded[row.Record.Time]) {
				t.Fatalf("bit %d: record %+v was not built", bit, row.Record)
			}
		}
		if corrupt != 1 {
			t.Fatalf("bit %d: %d errors, want 1", bit, corrupt)
		}
	}
}

func FuzzRead(f *testing.F) {
	data, footer, _, _ := build(f)
	f.Add(data)
	f.Add(data[footer.FooterAt:])
	f.Fuzz(func(t *testing.T, data []byte) {
		footer, err := ReadFooter(data, int64(len(data)))
		if err == nil {
			if _, err := ReadRecords(data[footer.RecordsAt:footer.FooterAt]); err != nil && !errors.Is(err, archive.ErrCorrupt) {
				t.Errorf("records: error %v has no kind", err)
			}
		}
		rows, err := ReadHeaders(data, Footer{HeadersAt: int64(len(data))})
		if err != nil && !errors.Is(err, archive.ErrCorrupt) {
			t.Errorf("headers: error %v has no kind", err)
		}
		for _, row := range rows {
			_ = data[row.Offset : row.Offset+row.Size] // is within the segment
		}
	})
}
