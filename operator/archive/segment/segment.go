// Package segment is the format of the objects in which an archive in S3 is stored. A segment
// has the bodies, headers and records of one commit, and a footer that describes them, so that
// a reader needs its end only.
//
// It is immutable, and knows no storage. Everything in it is checked when it is read.
package segment

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"time"

	"github.com/gleaner-dev/gleaner/operator/archive"
	"github.com/gleaner-dev/gleaner/operator/archive/codec"
)

// TailBytes is how many bytes at the end of a segment contain its footer.
const TailBytes = 64 << 10

const (
	format       = 1
	magic        = "GLEANSEG"
	trailer      = 4 + len(magic) // length of the footer, magic
	maxFooter    = TailBytes - trailer
	rowFixed     = 4 + 8 + 4 // length of the header, offset and size of the body
	recordFixed  = 4         // length of the record
	frameChecked = 8         // what a checksum adds
)

// A Horizon says what has been removed from segments before it, without rewriting them.
type Horizon struct {
	Segment     uint64    `json:"segment"`              // it is about segments with lower numbers
	Expired     time.Time `json:"expired,omitzero"`     // entries that expire at this time, or before
	OldestID    string    `json:"oldestID,omitempty"`   // entries with lower IDs
	RecordsFrom time.Time `json:"recordsFrom,omitzero"` // records of earlier times
}

// Footer describes a segment.
type Footer struct {
	Format   int       `json:"format"`
	Writer   string    `json:"writer"`          // tells one writer from others
	Epoch    uint64    `json:"epoch"`           // of the writer
	Nonce    string    `json:"nonce"`           // tells the segments of one number apart
	Fence    bool      `json:"fence,omitempty"` // the first of its writer, with nothing else in it
	From     uint64    `json:"from,omitempty"`  // of a fence: numbers from here to its own were skipped
	Replaces []uint64  `json:"replaces,omitempty"`
	Horizons []Horizon `json:"horizons,omitempty"` // all that are in force, also from segments before

	Entries    int64     `json:"entries"`
	Records    int64     `json:"records"`
	Bytes      int64     `json:"bytes"` // of bodies and records
	MinID      string    `json:"minID,omitempty"`
	MaxID      string    `json:"maxID,omitempty"`
	MinExpires time.Time `json:"minExpires,omitzero"`
	MinRecord  time.Time `json:"minRecord,omitzero"`
	MaxRecord  time.Time `json:"maxRecord,omitzero"`

	// The objects that records are about, and those of entries with the roots of their cascades. Earlier versions had none.
	RecordUIDs uidFilter `json:"recordUIDs,omitempty"`
	EntryUIDs  uidFilter `json:"entryUIDs,omitempty"`

	HeadersAt int64 `json:"headersAt"` // where bodies end
	RecordsAt int64 `json:"recordsAt"`
	FooterAt  int64 `json:"footerAt"`
}

// An Entry is an entry with its encoded header.
type Entry struct {
	archive.Entry
	Encoded []byte
}

// A Record is a record with its encoding.
type Record struct {
	archive.Record
	Encoded []byte
}

// Build returns a segment. Of f, it uses Epoch, Nonce, Replaces and Horizons, and sets the rest.
func Build(f Footer, entries []Entry, records []Record) ([]byte, Footer, error) {
	f.Format, f.Entries, f.Records, f.Bytes = format, int64(len(entries)), int64(len(records)), 0
	f.RecordUIDs, f.EntryUIDs = uidsOfRecords(records), uidsOfEntries(entries)
	var data, headers []byte
	at := map[archive.Digest]int{}
	for _, e := range entries {
		offset, stored := at[e.Content]
		if !stored {
			offset = len(data)
			at[e.Content] = offset
			data = append(data, e.Body...)
		}
		row := binary.BigEndian.AppendUint32(nil, uint32(len(e.Encoded)))
		row = binary.BigEndian.AppendUint64(row, uint64(offset))
		row = binary.BigEndian.AppendUint32(row, uint32(len(e.Body)))
		headers = append(append(headers, codec.WithChecksum(row)...), e.Encoded...)
		f.addEntry(e.Header)
	}
	f.HeadersAt = int64(len(data))
	data = append(data, headers...)
	f.RecordsAt = int64(len(data))
	for _, r := range records {
		row := binary.BigEndian.AppendUint32(nil, uint32(len(r.Encoded)))
		data = append(append(data, codec.WithChecksum(row)...), r.Encoded...)
		f.addRecord(r)
	}
	f.FooterAt = int64(len(data))
	f.Bytes += f.HeadersAt
	text, err := json.Marshal(f)
	if err != nil {
		return nil, f, fmt.Errorf("encode footer: %w", err)
	}
	footer := codec.WithChecksum(text)
	if len(footer) > maxFooter {
		return nil, f, fmt.Errorf("encode footer: %d bytes, and the maximum is %d", len(footer), maxFooter)
	}
	data = binary.BigEndian.AppendUint32(append(data, footer...), uint32(len(footer)))
	return append(data, magic...), f, nil
}

// MayHaveRecordsOf reports whether a record may be about an object. The empty UID stands for all objects.
func (f Footer) MayHaveRecordsOf(uid string) bool {
	return f.Records > 0 && (uid == "" || f.RecordUIDs.mayHave(uid))
}

// MayHaveEntriesOf reports whether an entry may be of an object, or of a cascade with this root. The empty UID stands for all.
func (f Footer) MayHaveEntriesOf(uid string) bool {
	return f.Entries > 0 && (uid == "" || f.EntryUIDs.mayHave(uid))
}

func (f *Footer) addEntry(h archive.Header) {
	if f.MinID == "" || h.ID < f.MinID {
		f.MinID = h.ID
	}
	f.MaxID = max(f.MaxID, h.ID)
	if !h.Expires.IsZero() && (f.MinExpires.IsZero() || h.Expires.Before(f.MinExpires)) {
		f.MinExpires = h.Expires
	}
}

func (f *Footer) addRecord(r Record) {
	f.Bytes += int64(len(r.Encoded))
	if f.MinRecord.IsZero() || r.Time.Before(f.MinRecord) {
		f.MinRecord = r.Time
	}
	if r.Time.After(f.MaxRecord) {
		f.MaxRecord = r.Time
	}
}

// ReadFooter returns the footer of a segment of this size from its end, of at least TailBytes if
// the segment has as many. The error is archive.ErrCorrupt, or says that the format is newer.
func ReadFooter(tail []byte, size int64) (Footer, error) {
	fail := func(why string) (Footer, error) {
		return Footer{}, fmt.Errorf("read footer: %w: %s", archive.ErrCorrupt, why)
	}
	if len(tail) < trailer || int64(len(tail)) > size || !bytes.HasSuffix(tail, []byte(magic)) {
		return fail("it is not a segment")
	}
	rest := tail[:len(tail)-trailer]
	length := int64(binary.BigEndian.Uint32(tail[len(rest):]))
	if length > int64(len(rest)) {
		return fail("it is longer than the segment")
	}
	text, err := codec.Verified(rest[int64(len(rest))-length:])
	if err != nil {
		return Footer{}, fmt.Errorf("read footer: %w", err)
	}
	var f Footer
	if err := json.Unmarshal(text, &f); err != nil {
		return fail(err.Error())
	}
	if f.Format > format {
		return Footer{}, fmt.Errorf("read footer: its format is %d, and this version of gleaner knows %d: use the version that wrote it, or a newer one", f.Format, format)
	}
	if f.HeadersAt < 0 || f.RecordsAt < f.HeadersAt || f.FooterAt < f.RecordsAt || f.FooterAt != size-int64(trailer)-length {
		return fail("it does not describe a segment of this size")
	}
	return f, nil
}

// A Row is an entry without its body, or why it cannot be read.
type Row struct {
	Header       archive.Header
	Err          error // archive.ErrCorrupt; the header then is not set
	Offset, Size int64 // of its body in the segment
}

// ReadHeaders reads what is from HeadersAt to RecordsAt.
func ReadHeaders(block []byte, f Footer) ([]Row, error) {
	var rows []Row
	for len(block) > 0 {
		fixed, encoded, rest, err := next(block, rowFixed)
		if err != nil {
			return nil, fmt.Errorf("read headers: %w", err)
		}
		row := Row{Offset: int64(binary.BigEndian.Uint64(fixed[4:])), Size: int64(binary.BigEndian.Uint32(fixed[12:]))}
		if row.Offset < 0 || row.Offset > f.HeadersAt || row.Size > f.HeadersAt-row.Offset {
			return nil, fmt.Errorf("read headers: %w: a body is outside the segment", archive.ErrCorrupt)
		}
		row.Header, row.Err = codec.DecodeHeader(encoded)
		rows = append(rows, row)
		block = rest
	}
	return rows, nil
}

// A RecordRow is a record, or why it cannot be read.
type RecordRow struct {
	Record archive.Record
	Err    error // archive.ErrCorrupt; the record then is not set
	Size   int64 // as it is stored
}

// ReadRecords reads what is from RecordsAt to FooterAt.
func ReadRecords(block []byte) ([]RecordRow, error) {
	var rows []RecordRow
	for len(block) > 0 {
		_, encoded, rest, err := next(block, recordFixed)
		if err != nil {
			return nil, fmt.Errorf("read records: %w", err)
		}
		row := RecordRow{Size: int64(len(encoded))}
		row.Record, row.Err = codec.DecodeRecord(encoded)
		rows = append(rows, row)
		block = rest
	}
	return rows, nil
}

// next splits a row off a block. The fixed part begins with the length of what follows it.
func next(block []byte, size int) (fixed, encoded, rest []byte, err error) {
	checked := frameChecked + size
	if len(block) < checked {
		return nil, nil, nil, fmt.Errorf("%w: a row ends early", archive.ErrCorrupt)
	}
	if fixed, err = codec.Verified(block[:checked]); err != nil {
		return nil, nil, nil, err
	}
	length := int(binary.BigEndian.Uint32(fixed))
	if length > len(block)-checked {
		return nil, nil, nil, fmt.Errorf("%w: a row ends early", archive.ErrCorrupt)
	}
	return fixed, block[checked : checked+length], block[checked+length:], nil
}
