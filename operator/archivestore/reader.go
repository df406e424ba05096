package archivestore

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/operator/archive"
)

// Reader returns a Reader of whatever store is open at the time of each call. If there is none, the
// error says why. Closing it does nothing.
func (s *Source) Reader() archive.Reader { return reader{s} }

type reader struct{ source *Source }

// Headers implements archive.Reader.
func (r reader) Headers(ctx context.Context, q archive.Query, yield func(archive.Header) bool) error {
	store, err := r.source.Store()
	if err != nil {
		return err
	}
	return store.Headers(ctx, q, yield)
}

// Body implements archive.Reader.
func (r reader) Body(ctx context.Context, h archive.Header) ([]byte, error) {
	store, err := r.source.Store()
	if err != nil {
		return nil, err
	}
	return store.Body(ctx, h)
}

// Records implements archive.Reader.
func (r reader) Records(ctx context.Context, uid types.UID, since, before time.Time, yield func(archive.Record) bool) error {
	store, err := r.source.Store()
	if err != nil {
		return err
	}
	return store.Records(ctx, uid, since, before, yield)
}

// Usage implements archive.Reader.
func (r reader) Usage(ctx context.Context) (archive.Usage, error) {
	store, err := r.source.Store()
	if err != nil {
		return archive.Usage{}, err
	}
	return store.Usage(ctx)
}

// Close implements archive.Reader.
func (r reader) Close() error { return nil }
