package demo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
)

// recorded are builds that only write down their names.
func recorded(t *testing.T) (*builds, *[]string) {
	t.Helper()
	b, err := newBuilds(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var order []string // read after a wait only
	for name, task := range map[string]*build{"keep-data": b.keepData.build, "storage": b.storage, "bucket": b.bucket.build} {
		task.run = func(_ context.Context, progress io.Writer) error {
			order = append(order, name)
			return nil
		}
	}
	return b, &order
}

func TestDemo_BuildsInOrderOfSteps(t *testing.T) {
	b, order := recorded(t)
	defer b.stop()
	b.start()
	if err := b.bucket.wait(t.Context(), io.Discard); err != nil {
		t.Fatal(err)
	}
	if want := []string{"keep-data", "storage", "bucket"}; !slices.Equal(*order, want) {
		t.Errorf("got %v, want %v", *order, want)
	}
}

func TestDemo_BuildsNothingBeforeFirstDeletion(t *testing.T) {
	b, order := recorded(t)
	b.stop()
	if len(*order) != 0 {
		t.Errorf("built: %v", *order)
	}
	if err := b.bucket.wait(t.Context(), io.Discard); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(b.dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder was left: %v", err)
	}
}

func TestDemo_StopCancelsCurrentBuild(t *testing.T) {
	b, _ := recorded(t)
	started := make(chan struct{})
	b.storage.run = func(ctx context.Context, _ io.Writer) error {
		close(started)
		<-ctx.Done()
		return ctx.Err()
	}
	b.start()
	<-started
	b.stop()
	if err := b.storage.wait(t.Context(), io.Discard); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestDemo_ShowsBuildProgressOnlyWhileWaiting(t *testing.T) {
	b, _ := recorded(t)
	defer b.stop()
	written, seen := make(chan struct{}), make(chan struct{})
	b.storage.run = func(_ context.Context, progress io.Writer) error {
		fmt.Fprintln(progress, "before")
		close(written)
		for {
			fmt.Fprintln(progress, "meanwhile")
			select {
			case <-seen:
				return nil
			default:
				runtime.Gosched()
			}
		}
	}
	b.start()
	<-written
	out := &observed{seen: seen}
	if err := b.storage.wait(t.Context(), out); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(&b.storage.gate, "after")
	if text := out.String(); !strings.Contains(text, "meanwhile") || strings.Contains(text, "before") || strings.Contains(text, "after") {
		t.Errorf("got %q", text)
	}
}

// observed tells of the first write.
type observed struct {
	bytes.Buffer
	once sync.Once
	seen chan struct{}
}

func (o *observed) Write(p []byte) (int, error) {
	o.once.Do(func() { close(o.seen) })
	return o.Buffer.Write(p)
}
