package filestore_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/operator/archive"
	"github.com/gleaner-dev/gleaner/operator/archive/filestore"
)

func TestRemove_KeepsBodiesThatOthersHave(t *testing.T) {
	s, err := filestore.Open(t.TempDir(), filestore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var entries []archive.Entry
	for i := range 450 { // more than one transaction
		o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "a", "namespace": "shop"}}}
		o.SetUID(types.UID(fmt.Sprint("u", i/2))) // two entries each have the same body
		e, err := archive.Seal(o, archive.Header{Time: time.Unix(int64(1000+i), 0)}, nil)
		if err != nil {
			t.Fatal(err)
		}
		entries = append(entries, e)
	}
	if err := s.Put(t.Context(), entries...); err != nil {
		t.Fatal(err)
	}
	if n, err := s.Remove(t.Context(), entries[0].ID, entries[0].ID); err != nil || n != 1 {
		t.Errorf("removed %d: %v", n, err)
	}
	if _, err := s.Body(t.Context(), entries[1].Header); err != nil {
		t.Errorf("the body of another entry: %v", err)
	}
	var ids []string
	for _, e := range entries {
		ids = append(ids, e.ID)
	}
	if n, err := s.Remove(t.Context(), ids...); err != nil || n != int64(len(entries)-1) {
		t.Errorf("removed %d: %v", n, err)
	}
	if _, err := s.Body(t.Context(), entries[1].Header); !errors.Is(err, archive.ErrNotFound) {
		t.Errorf("a body that no entry has: %v", err)
	}
	if u, err := s.Usage(t.Context()); err != nil || u.Entries != 0 || u.Bytes != 0 {
		t.Errorf("what is left: %+v %v", u, err)
	}
	if _, err := s.Remove(t.Context(), "x"); err == nil {
		t.Error("an invalid ID is no error")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Remove(ctx, ids...); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
}
