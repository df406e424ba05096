// Package open opens the archive at a location, which is what --archive takes: file:///FOLDER or
// s3://BUCKET/PREFIX.
//
// It is the only package that knows all stores.
package open

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/gleaner-dev/gleaner/operator/archive"
	"github.com/gleaner-dev/gleaner/operator/archive/filestore"
	"github.com/gleaner-dev/gleaner/operator/archive/s3store"
)

// A Location is where an archive is: in a folder, or in a bucket.
type Location struct {
	Dir            string // absolute; empty: in a bucket
	Bucket, Prefix string // the prefix is empty, or ends in a slash
}

// Shared reports whether several replicas may have the location configured: one writes, and
// takes over from another. In a folder, only one process can have the archive open.
func (l Location) Shared() bool { return l.Dir == "" }

// String returns the location as it is written.
func (l Location) String() string {
	if l.Dir != "" {
		return (&url.URL{Scheme: "file", Path: filepath.ToSlash(l.Dir)}).String()
	}
	return "s3://" + l.Bucket + "/" + l.Prefix
}

var errForm = errors.New("write file:///FOLDER with an absolute path, or s3://BUCKET/PREFIX")

// bucketName is what S3 allows, and a little more that other storage does.
var bucketName = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9._-]{1,62}$`)

// Parse parses a location. The error says what to write instead.
func Parse(location string) (Location, error) {
	l, err := parse(location)
	if err != nil && strings.Contains(location, "@") {
		return Location{}, errors.New("parse archive location: it contains @, and credentials do not belong in it: set them with AWS_ variables, and write s3://BUCKET/PREFIX")
	}
	if err != nil {
		return Location{}, fmt.Errorf("parse archive location %q: %w", location, err)
	}
	return l, nil
}

func parse(location string) (Location, error) {
	if rest, ok := strings.CutPrefix(location, "s3://"); ok { // prefixes are no paths, and not encoded
		bucket, prefix, _ := strings.Cut(rest, "/")
		if !bucketName.MatchString(bucket) {
			return Location{}, fmt.Errorf("%q is not the name of a bucket: write s3://BUCKET/PREFIX, and set region and endpoint with AWS_ variables", bucket)
		}
		if strings.ContainsAny(prefix, "?#\x00") || strings.HasPrefix(prefix, "/") || strings.Contains(prefix, "//") || len(prefix) > 512 {
			return Location{}, errors.New("the prefix may not have ?, # or empty parts, or be longer than 512 bytes")
		}
		if prefix != "" && !strings.HasSuffix(prefix, "/") {
			prefix += "/"
		}
		return Location{Bucket: bucket, Prefix: prefix}, nil
	}
	u, err := url.Parse(location)
	switch {
	case err != nil, u.Scheme != "file":
		return Location{}, errForm
	case u.Host != "" || !strings.HasPrefix(u.Path, "/") || strings.Trim(u.Path, "/") == "":
		return Location{}, errors.New("a folder needs three slashes and an absolute path: write file:///FOLDER")
	case u.RawQuery != "" || u.Fragment != "" || strings.Contains(u.Path, "\x00"):
		return Location{}, errors.New("a folder has no ? or #: write them as %3F and %23")
	}
	return Location{Dir: filepath.FromSlash(filepath.Clean(u.Path))}, nil
}

// Store opens the archive at a location for writing. The caller closes it. Of what a crash
// interrupted, it returns a message to log, or an empty one.
func Store(ctx context.Context, l Location) (s archive.Store, recovered string, err error) {
	if l.Shared() {
		s, err := s3store.Open(ctx, l.Bucket, l.Prefix, s3store.Options{})
		if err != nil {
			return nil, "", err
		}
		return s, "", nil
	}
	f, err := filestore.Open(l.Dir, filestore.Options{})
	if err != nil {
		return nil, "", err
	}
	return f, f.Recovered(), nil
}

// Reader opens the archive at a location for reading. The caller closes it. A folder cannot be
// read while the operator has it open: then the error is archive.ErrInUse.
func Reader(ctx context.Context, l Location) (archive.Reader, error) {
	if l.Shared() {
		r, err := s3store.OpenReadOnly(ctx, l.Bucket, l.Prefix)
		if err != nil {
			return nil, err
		}
		return r, nil
	}
	f, err := filestore.OpenReadOnly(l.Dir, filestore.Options{})
	if err != nil {
		return nil, err
	}
	return f, nil
}
