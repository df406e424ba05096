package entries

import (
	"context"
	"errors"

	"github.com/gleaner-dev/gleaner/internal/cli/exit"
	"github.com/gleaner-dev/gleaner/operator/archive"
	"github.com/gleaner-dev/gleaner/operator/archive/open"
)

// OpenStoreForReading opens the store that the flags name for reading. The caller closes it.
func (f *Flags) OpenStoreForReading(ctx context.Context) (archive.Reader, error) {
	at, err := f.store()
	if err != nil {
		return nil, err
	}
	return open.Reader(ctx, at)
}

// OpenStore opens the store that the flags name for writing: another writer, such as the operator,
// can't write it any more. The caller closes it.
func (f *Flags) OpenStore(ctx context.Context) (archive.Store, error) {
	at, err := f.store()
	if err != nil {
		return nil, err
	}
	s, _, err := open.Store(ctx, at)
	return s, err
}

// Shared reports whether the store can be opened for writing while another process writes it, which
// then can't any more.
func (f *Flags) Shared() bool {
	at, err := f.store()
	return err == nil && at.Shared()
}

var errNoLocation = errors.New("--archive is required: the location of the store, such as file:///var/lib/gleaner/archive")

func (f *Flags) store() (open.Location, error) {
	if f.Location() == "" {
		return open.Location{}, exit.AsUsage(errNoLocation)
	}
	at, err := open.Parse(f.Location())
	if err != nil {
		return at, exit.AsUsage(err)
	}
	return at, nil
}
