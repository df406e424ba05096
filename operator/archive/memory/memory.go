// Package memory is an archive in memory, for tests of what reads one.
package memory

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"filippo.io/age"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/operator/archive"
)

// Archive is an archive.Reader in memory. Its zero value is empty. It has no records.
type Archive struct {
	mu      sync.Mutex // covers entries
	entries []archive.Entry
}

// Add seals an object and adds its entry, as archived at a time because of a cause.
func (m *Archive) Add(t testing.TB, o *unstructured.Unstructured, at time.Time, cause archive.Cause, recipients ...age.Recipient) archive.Header {
	t.Helper()
	e, err := archive.Seal(o, archive.Header{Time: at, Cause: cause}, recipients)
	if err != nil {
		t.Fatal(err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.entries = append(m.entries, e)
	slices.SortFunc(m.entries, func(a, b archive.Entry) int { return cmp.Or(b.Time.Compare(a.Time), strings.Compare(b.ID, a.ID)) })
	return e.Header
}

// Corrupt changes the body of an entry.
func (m *Archive) Corrupt(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range m.entries {
		if m.entries[i].ID == id {
			m.entries[i].Body = append(bytes.Clone(m.entries[i].Body), 'x')
		}
	}
}

func (m *Archive) all() []archive.Entry {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.entries)
}

// Headers implements archive.Reader.
func (m *Archive) Headers(ctx context.Context, q archive.Query, yield func(archive.Header) bool) error {
	for _, e := range m.all() {
		if err := ctx.Err(); err != nil {
			return err
		}
		if q.Matches(e.Header) && !yield(e.Header) {
			break
		}
	}
	return nil
}

// Body implements archive.Reader. It does not check the digest.
func (m *Archive) Body(_ context.Context, h archive.Header) ([]byte, error) {
	for _, e := range m.all() {
		if e.ID == h.ID {
			return bytes.Clone(e.Body), nil
		}
	}
	return nil, archive.ErrNotFound
}

// Records implements archive.Reader.
func (m *Archive) Records(context.Context, types.UID, time.Time, time.Time, func(archive.Record) bool) error {
	return nil
}

// Usage implements archive.Reader.
func (m *Archive) Usage(context.Context) (archive.Usage, error) {
	var u archive.Usage
	for _, e := range m.all() {
		u.Entries++
		u.Bytes += int64(len(e.Body))
		u.Oldest = e.Time
	}
	return u, nil
}

// Close implements archive.Reader.
func (m *Archive) Close() error { return nil }
