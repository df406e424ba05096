package entries

import (
	"context"
	"errors"
	"fmt"
	"net/url"

	"github.com/gleaner-dev/gleaner/internal/cli/exit"
	"github.com/gleaner-dev/gleaner/operator/archive"
	"github.com/gleaner-dev/gleaner/operator/archive/filestore"
)

// openStore opens a store for reading.
func openStore(_ context.Context, location string) (archive.Reader, error) {
	dir, err := folderOf(location)
	if err != nil {
		return nil, err
	}
	return filestore.OpenReadOnly(dir, filestore.Options{})
}

// OpenStoreForReading opens the store that the flags name for reading.
func (f *Flags) OpenStoreForReading(ctx context.Context) (archive.Reader, error) {
	return openStore(ctx, f.Location())
}

// OpenStore opens the store that the flags name for writing.
func (f *Flags) OpenStore(_ context.Context) (archive.Store, error) {
	if f.Location() == "" {
		return nil, exit.Usagef("--archive is required: the location of the store, such as file:///var/lib/gleaner/archive")
	}
	dir, err := folderOf(f.Location())
	if err != nil {
		return nil, err
	}
	return filestore.Open(dir, filestore.Options{})
}

func folderOf(location string) (string, error) {
	at, err := url.Parse(location)
	if err == nil && (at.Scheme != "file" || at.Host != "" || at.Path == "") {
		err = errors.New("write file:///DIRECTORY")
	}
	if err != nil {
		return "", exit.AsUsage(fmt.Errorf("invalid archive %q: %w", location, err))
	}
	return at.Path, nil
}
