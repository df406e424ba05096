package s3store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/gleaner-dev/gleaner/operator/archive"
	"github.com/gleaner-dev/gleaner/operator/archive/segment"
)

// A Reader reads an archive, also while it is written. Its methods may be called concurrently.
type Reader struct{ reading }

var _ archive.Reader = (*Reader)(nil)

// OpenReadOnly opens the archive below a prefix of a bucket for reading. An archive that was
// never written is empty.
func OpenReadOnly(ctx context.Context, name, prefix string) (*Reader, error) {
	b, err := openBucket(ctx, name, prefix)
	if err != nil {
		return nil, fmt.Errorf("open archive s3://%s/%s: %w", name, prefix, err)
	}
	f := newFooters(b)
	if _, err := f.load(ctx); err != nil {
		b.close()
		return nil, fmt.Errorf("open archive s3://%s/%s: %w", name, prefix, err)
	}
	return &Reader{reading{bucket: b, blocks: f.blocks, current: f.load}}, nil
}

// Close closes connections that are idle. A reader holds nothing else.
func (r *Reader) Close() error {
	r.bucket.close()
	return nil
}

// reading is what a Store and a Reader have in common.
type reading struct {
	bucket  *bucket
	blocks  *blocks
	current func(context.Context) (*view, error)
}

// reloads is how often a call starts again because segments were merged or deleted meanwhile.
const reloads = 10

// retry calls f with the current view, and again if a segment of it is gone.
func (r *reading) retry(ctx context.Context, f func(*view) error) error {
	var err error
	for range reloads {
		if err = ctx.Err(); err != nil {
			return err
		}
		var v *view
		if v, err = r.current(ctx); err != nil {
			return err
		}
		if err = f(v); !errors.Is(err, errGone) {
			return err
		}
	}
	return err
}

// errGone means that a segment of a view was deleted.
var errGone = errors.New("segments were merged while they were read")

func (r *reading) footer(ctx context.Context, number uint64) (*stored, error) {
	return readFooter(ctx, r.bucket, r.blocks, number)
}

// block returns the headers and records of a segment, as they are stored.
func (r *reading) block(ctx context.Context, s *stored) ([]byte, error) {
	if data, ok := r.blocks.get(s.number); ok {
		return data, nil
	}
	data, err := r.bucket.slice(ctx, keyOf(s.number), s.footer.HeadersAt, s.footer.FooterAt-s.footer.HeadersAt)
	if errors.Is(err, archive.ErrNotFound) {
		return nil, errGone
	}
	if err != nil {
		return nil, err
	}
	r.blocks.put(s.number, data)
	return data, nil
}

func (r *reading) headers(ctx context.Context, s *stored) ([]segment.Row, error) {
	if s.footer.Entries == 0 {
		return nil, nil
	}
	data, err := r.block(ctx, s)
	if err != nil {
		return nil, err
	}
	rows, err := segment.ReadHeaders(data[:s.footer.RecordsAt-s.footer.HeadersAt], s.footer)
	if err != nil {
		return nil, fmt.Errorf("segment %x: %w", s.number, err)
	}
	return rows, nil
}

func (r *reading) records(ctx context.Context, s *stored) ([]segment.RecordRow, error) {
	if s.footer.Records == 0 {
		return nil, nil
	}
	data, err := r.block(ctx, s)
	if err != nil {
		return nil, err
	}
	rows, err := segment.ReadRecords(data[s.footer.RecordsAt-s.footer.HeadersAt:])
	if err != nil {
		return nil, fmt.Errorf("segment %x: %w", s.number, err)
	}
	return rows, nil
}

// corruption counts what was skipped.
type corruption struct {
	number int
	first  error
}

func (c *corruption) add(err error) {
	if c.number++; c.number == 1 {
		c.first = err
	}
}

func (c *corruption) err() error {
	if c.number == 0 {
		return nil
	}
	return fmt.Errorf("corrupt and skipped: %d, the first because of: %w", c.number, c.first)
}

// Headers yields headers, newest first.
func (r *reading) Headers(ctx context.Context, q archive.Query, yield func(archive.Header) bool) error {
	m := &headerMerge{yield: yield}
	if err := r.retry(ctx, func(v *view) error { return r.mergeHeaders(ctx, v, q, m) }); err != nil {
		return fmt.Errorf("read headers: %w", err)
	}
	return nil
}

// A headerMerge yields headers in order. It continues after a retry.
type headerMerge struct {
	yield   func(archive.Header) bool
	pending []archive.Header
	last    string // ID that was yielded last
	stopped bool
}

// flush yields what is newer than an ID.
func (m *headerMerge) flush(above string) {
	slices.SortFunc(m.pending, func(a, b archive.Header) int { return strings.Compare(b.ID, a.ID) })
	for len(m.pending) > 0 && m.pending[0].ID > above && !m.stopped {
		if h := m.pending[0]; m.last == "" || h.ID < m.last {
			m.last, m.stopped = h.ID, !m.yield(h)
		}
		m.pending = m.pending[1:]
	}
}

func (r *reading) mergeHeaders(ctx context.Context, v *view, q archive.Query, m *headerMerge) error {
	var corrupt corruption
	m.pending = nil
	for _, s := range byNewest(v, q, &corrupt) {
		if m.flush(s.footer.MaxID); m.stopped {
			return nil
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		rows, err := r.headers(ctx, s)
		if errors.Is(err, archive.ErrCorrupt) {
			corrupt.add(err)
			continue
		}
		if err != nil {
			return err
		}
		m.pending = append(m.pending, selected(v, s, rows, q, &corrupt)...)
	}
	if m.flush(""); m.stopped {
		return nil
	}
	return corrupt.err()
}

// byNewest returns the segments that may have entries of a query, by their newest entry.
func byNewest(v *view, q archive.Query, corrupt *corruption) []*stored {
	var found []*stored
	for _, s := range v.segments {
		switch {
		case s.err != nil:
			corrupt.add(fmt.Errorf("segment %x: %w", s.number, s.err))
		case !s.footer.MayHaveEntriesOf(string(q.UID)), !s.footer.MayHaveEntriesOf(string(q.Root)),
			!q.Since.IsZero() && s.footer.MaxID < archive.IDPrefix(q.Since),
			!q.Before.IsZero() && s.footer.MinID >= archive.IDPrefix(q.Before):
		default:
			found = append(found, s)
		}
	}
	slices.SortFunc(found, func(a, b *stored) int { return strings.Compare(b.footer.MaxID, a.footer.MaxID) })
	return found
}

func selected(v *view, s *stored, rows []segment.Row, q archive.Query, corrupt *corruption) []archive.Header {
	var found []archive.Header
	horizon := v.horizon(s.number)
	for _, row := range rows {
		switch {
		case removesEntry(horizon, row, s.footer):
		case row.Err != nil:
			corrupt.add(fmt.Errorf("segment %x: %w", s.number, row.Err))
		case q.Matches(row.Header):
			found = append(found, row.Header)
		}
	}
	return found
}

// find returns the segment of an entry that was not removed, and its row. The error is
// archive.ErrNotFound if there is none.
func (r *reading) find(ctx context.Context, v *view, id string) (*stored, segment.Row, error) {
	for _, s := range slices.Backward(v.segments) {
		if s.err != nil || s.footer.Entries == 0 || id < s.footer.MinID || id > s.footer.MaxID {
			continue
		}
		rows, err := r.headers(ctx, s)
		if err != nil {
			return nil, segment.Row{}, err
		}
		horizon := v.horizon(s.number)
		for _, row := range rows {
			if row.Err == nil && row.Header.ID == id && !removesEntry(horizon, row, s.footer) {
				return s, row, nil
			}
		}
	}
	return nil, segment.Row{}, archive.ErrNotFound
}

// Body returns the body of an entry.
func (r *reading) Body(ctx context.Context, h archive.Header) ([]byte, error) {
	var body []byte
	err := r.retry(ctx, func(v *view) error {
		s, row, err := r.find(ctx, v, h.ID)
		if err != nil {
			return err
		}
		body, err = r.bucket.slice(ctx, keyOf(s.number), row.Offset, row.Size)
		if errors.Is(err, archive.ErrNotFound) {
			return errGone
		}
		if err != nil {
			return err
		}
		return archive.VerifyBody(h, body)
	})
	if err != nil {
		return nil, fmt.Errorf("read body of %s: %w", h.Object, err)
	}
	return body, nil
}
