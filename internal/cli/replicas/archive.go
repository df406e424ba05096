package replicas

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/gleaner-dev/gleaner/operator/archive"
	"github.com/gleaner-dev/gleaner/operator/archive/serve"
)

// An Archive reads the operator's archive. Entries of objects that the client may not get are not
// in it. Create it with OpenArchive.
type Archive struct {
	replica *Replica
	all     []*Replica // to close
}

// OpenArchive finds a replica that serves an archive.
func OpenArchive(ctx context.Context, w Options) (*Archive, error) {
	all, err := Find(ctx, w)
	if err != nil {
		return nil, err
	}
	problems := []error{}
	for _, r := range all {
		var page serve.Page
		err := r.Get(ctx, serve.HeadersPath+"?limit=1", &page)
		if err == nil {
			return &Archive{replica: r, all: all}, nil
		}
		problems = append(problems, fmt.Errorf("%s: %w", r.Name, err))
	}
	Close(all)
	if len(problems) == 0 {
		return nil, errors.New("find archive: no replica of the operator was found: pass --archive LOCATION to read its store directly")
	}
	return nil, fmt.Errorf("read the operator's archive: %w; pass --archive LOCATION to read its store directly", errors.Join(problems...))
}

// Headers calls yield for the headers that a query selects, newest first, until that returns false. It
// is an error if the operator could not review access to all of them. Headers that are
// corrupt are skipped, and the error at the end is archive.ErrCorrupt.
func (a *Archive) Headers(ctx context.Context, q archive.Query, yield func(archive.Header) bool) error {
	var corrupt error
	for position := ""; ; {
		page, err := a.page(ctx, serve.Values(q, position))
		if err != nil {
			return fmt.Errorf("read archive of %s: %w", a.replica.Name, err)
		}
		for _, h := range page.Items {
			if !yield(h) {
				return nil
			}
		}
		if page.Corrupt != "" {
			corrupt = fmt.Errorf("%w: %s", archive.ErrCorrupt, page.Corrupt)
		}
		if page.Continue == "" {
			return corrupt
		}
		if page.Continue == position {
			return fmt.Errorf("read archive of %s: the page after %q is that page again", a.replica.Name, position)
		}
		position = page.Continue
	}
}

func (a *Archive) page(ctx context.Context, v url.Values) (page serve.Page, err error) {
	if err := ctx.Err(); err != nil {
		return page, err
	}
	reply, err := a.replica.read(ctx, serve.HeadersPath+"?"+v.Encode())
	if err != nil {
		return page, err
	}
	if reply.warning != "" {
		return page, fmt.Errorf("%s", strings.TrimPrefix(reply.warning, "299 gleaner "))
	}
	return page, reply.decode(&page)
}

// Body returns the body of an entry. The error is archive.ErrNotFound if it is not in the archive,
// or the client may not get its object, and archive.ErrCorrupt if it is not the one that the
// header describes.
func (a *Archive) Body(ctx context.Context, h archive.Header) ([]byte, error) {
	reply, err := a.replica.read(ctx, serve.BodyPath+"?"+serve.EntryValues(h).Encode())
	switch {
	case err != nil:
	case reply.code == http.StatusNotFound:
		err = archive.ErrNotFound
	case reply.code == http.StatusUnprocessableEntity:
		err = archive.ErrCorrupt
	case reply.code != http.StatusOK:
		err = statusError(reply.code, string(reply.body))
	default:
		err = archive.VerifyBody(h, reply.body)
	}
	if err != nil {
		return nil, fmt.Errorf("read entry %s of %s: %w", h.ID, a.replica.Name, err)
	}
	return reply.body, nil
}

// Close closes the connections.
func (a *Archive) Close() error {
	Close(a.all)
	return nil
}
