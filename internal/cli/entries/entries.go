// Package entries opens the archive that a command reads: a store, which --archive names, or the
// operator's, through its debug endpoints. It reads entries and decrypts objects.
//
// It selects nothing and writes nothing.
package entries

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"filippo.io/age"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/gleaner-dev/gleaner/internal/cli/exit"
	"github.com/gleaner-dev/gleaner/internal/cli/replicas"
	"github.com/gleaner-dev/gleaner/operator/archive"
)

// LocationVariable is the environment variable for --archive.
const LocationVariable = "GLEANER_ARCHIVE"

const (
	maxIdentityBytes = 1 << 20   // of an identity file
	maxHeaders       = 1_000_000 // that are read for one command
)

// A Reader reads entries, as an archive.Reader does.
type Reader interface {
	Headers(ctx context.Context, q archive.Query, yield func(archive.Header) bool) error
	Body(ctx context.Context, h archive.Header) ([]byte, error)
	Close() error
}

// Flags are the flags of commands that read an archive.
type Flags struct {
	operator   replicas.Flags
	location   string
	identities []string
}

// AddTo adds the flags. Without identities, bodies are not decrypted.
func (f *Flags) AddTo(flags *pflag.FlagSet, identities bool) {
	f.operator.AddTo(flags)
	flags.StringVar(&f.location, "archive", "", "`location` of the archive, to read its store directly: file:///FOLDER or s3://BUCKET/PREFIX. Default $"+LocationVariable+"; "+
		"by default the operator is queried")
	if identities {
		flags.StringArrayVar(&f.identities, "identity", nil, "`file` with age identities, or an SSH private key, to decrypt entries with")
	}
}

// Location returns the location of the store; empty: that of the operator.
func (f *Flags) Location() string {
	if f.location != "" {
		return f.location
	}
	return os.Getenv(LocationVariable)
}

// Operator returns how the operator is reached.
func (f *Flags) Operator(config *rest.Config) replicas.Options { return f.operator.Options(config) }

// Validate returns an error if a flag is invalid.
func (f *Flags) Validate() error {
	if f.Location() != "" {
		_, err := f.store()
		return err
	}
	return f.operator.Validate()
}

// Open opens the archive. The caller closes it.
func (f *Flags) Open(ctx context.Context, config func() (*rest.Config, error)) (Reader, error) {
	if f.Location() != "" {
		r, err := f.OpenStoreForReading(ctx)
		if errors.Is(err, archive.ErrInUse) {
			return nil, fmt.Errorf("open archive: %w; while the operator runs, omit --archive to read through it", err)
		}
		return r, err
	}
	c, err := config()
	if err != nil {
		return nil, err
	}
	return replicas.OpenArchive(ctx, f.operator.Options(c))
}

// HasIdentities reports whether there is a flag --identity.
func (f *Flags) HasIdentities() bool { return len(f.identities) != 0 }

// Identities returns the identities in the files of --identity.
func (f *Flags) Identities() ([]age.Identity, error) {
	var all []age.Identity
	for _, name := range f.identities {
		text, err := readFile(name)
		if err != nil {
			return nil, exit.Usagef("--identity=%s: %w", name, err)
		}
		found, err := archive.ParseIdentities(text)
		if err != nil {
			return nil, exit.Usagef("--identity=%s: %w", name, err)
		}
		all = append(all, found...)
	}
	return all, nil
}

func readFile(name string) (string, error) {
	file, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maxIdentityBytes+1))
	if err == nil && len(data) > maxIdentityBytes {
		err = fmt.Errorf("it has more than %d bytes", maxIdentityBytes)
	}
	return string(data), err
}

// Each calls yield for each header that a query selects, newest first. Headers that are corrupt are
// skipped, and the error at the end is archive.ErrCorrupt.
func Each(ctx context.Context, r Reader, q archive.Query, yield func(archive.Header)) error {
	n := 0
	err := r.Headers(ctx, q, func(h archive.Header) bool {
		if n++; n > maxHeaders {
			return false
		}
		yield(h)
		return ctx.Err() == nil
	})
	switch {
	case err != nil:
		return fmt.Errorf("read archive: %w", err)
	case n > maxHeaders:
		return fmt.Errorf("read archive: more than %d entries: select fewer, with -n or --since", maxHeaders)
	default:
		return ctx.Err()
	}
}

// Object reads the object of an entry.
func Object(ctx context.Context, r Reader, h archive.Header, identities []age.Identity) (*unstructured.Unstructured, error) {
	body, err := r.Body(ctx, h)
	if err != nil {
		return nil, err
	}
	return archive.Open(h, body, identities...)
}

// ParseSince returns the time of a --since: a duration before now, or a time in RFC 3339.
func ParseSince(text string, now time.Time) (time.Time, error) {
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return t, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		return time.Time{}, fmt.Errorf("%q is no duration and no time: write 10m, 24h or 2026-01-02T03:04:05Z", text)
	}
	return now.Add(-d), nil
}
