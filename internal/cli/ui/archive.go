package ui

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	cliarchive "github.com/gleaner-dev/gleaner/internal/cli/archive"
	"github.com/gleaner-dev/gleaner/internal/cli/entries"
	"github.com/gleaner-dev/gleaner/internal/cli/restore"
	"github.com/gleaner-dev/gleaner/internal/ui/page"
	"github.com/gleaner-dev/gleaner/operator/archive"
)

func (c *cluster) openArchive(ctx context.Context) (entries.Reader, error) {
	return c.archive.Open(ctx, func() (*rest.Config, error) { return c.config, nil })
}

// entries lists archived objects, the newest first.
func (c *cluster) entries(ctx context.Context, q archive.Query, limit int) (found []archive.Header, more bool, err error) {
	r, err := c.openArchive(ctx)
	if err != nil {
		return nil, false, err
	}
	defer r.Close()
	kind := q.Kind
	q.Kind = "" // in any case
	err = r.Headers(ctx, q, func(h archive.Header) bool {
		if kind != "" && !strings.EqualFold(kind, h.Object.Kind) {
			return ctx.Err() == nil
		}
		if more = len(found) == limit; more {
			return false
		}
		found = append(found, h)
		return ctx.Err() == nil
	})
	return found, more, errors.Join(err, ctx.Err())
}

// entry reads an archived object, and compares it with the one that exists.
func (c *cluster) entry(ctx context.Context, id string) (v page.Archived, err error) {
	r, err := c.openArchive(ctx)
	if err != nil {
		return v, err
	}
	defer r.Close()
	if v.Header, err = cliarchive.Entry(ctx, r, id); err != nil {
		return v, err
	}
	identities, err := c.archive.Identities()
	if err != nil {
		return v, err
	}
	object, err := entries.Object(ctx, r, v.Header, identities)
	if err != nil {
		v.Unread = err.Error()
		return v, nil
	}
	live, err := cliarchive.Live(ctx, c.config, c.mapper, v.Header)
	if err != nil {
		v.Unread = fmt.Sprintf("read the object of its name: %v", err)
		return v, nil
	}
	v.Live = live != nil
	if v.Diff, err = cliarchive.Compare(object, live); err != nil {
		v.Unread = err.Error()
	}
	if kind := object.GroupVersionKind(); kind.Group == "" && kind.Kind == "Secret" {
		return v, nil // the values are not for a page
	}
	text, err := yaml.Marshal(object.Object)
	v.Manifest = string(text)
	return v, err
}

func (c *cluster) restore(ctx context.Context, uid types.UID, dryRun bool) (string, error) {
	return restore.Object(ctx, c.config, c.archive, uid, dryRun)
}
