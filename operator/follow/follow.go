// Package follow follows the whole objects of a resource: it lists them in pages of bounded size, and then watches them. What it has read
// is passed on, and not kept.
//
// It decides nothing about objects. Metadata of all types is followed by package watch; this is for the few types of which a component
// needs more.
package follow

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"

	"github.com/gleaner-dev/gleaner/operator/bulkread"
	"github.com/gleaner-dev/gleaner/operator/catalog"
)

const (
	// pageSize is the number of objects of a page, and maxPageBytes its size. A page that would be larger is listed with half as many.
	pageSize, maxPageBytes = 500, 8 << 20

	// A watch ends after a time between minWatch and twice that, like those of client-go.
	minWatch = 5 * time.Minute

	// maxLargest is the size of the largest single object.
	maxLargest = 64 << 20

	pageTimeout = time.Minute
)

// Lister lists pages of whole objects.
type Lister = bulkread.Lister

// Sink receives the objects of one resource. Its methods are called by one goroutine at a time.
type Sink interface {
	// Listing says that a list of all objects begins.
	Listing()

	// Put shows an object as it is in a list or after a change. It may be kept.
	Put(*unstructured.Unstructured)

	// Gone shows an object that was deleted, as it was then.
	Gone(*unstructured.Unstructured)

	// Listed says that the list is complete: what was not in it does not exist any more. Objects that have changed meanwhile are put
	// again.
	Listed()

	// Failed says that objects can't be read. They will be listed again.
	Failed(error)
}

// Follower follows a resource. All fields are required.
type Follower struct {
	Lister   Lister
	Client   dynamic.Interface // for watches
	Resource catalog.Resource
	Sink     Sink

	// Relist returns a channel that is closed when all objects have to be listed again. It is called before each list.
	Relist func() <-chan struct{}

	MinRetry, MaxRetry time.Duration // bounds of the delay after a failure
}

// Run follows the resource until ctx ends.
func (f *Follower) Run(ctx context.Context) {
	delay := f.MinRetry
	for ctx.Err() == nil {
		relist := f.Relist()
		began := time.Now()
		err := f.follow(ctx, relist)
		if ctx.Err() != nil {
			return
		}
		if err == nil || time.Since(began) > 2*f.MaxRetry {
			delay = f.MinRetry
		}
		if err != nil {
			f.Sink.Failed(err)
		}
		pause(ctx, delay)
		if err != nil {
			delay = min(2*delay, f.MaxRetry)
		}
	}
}

// follow lists and watches until all has to be listed again. The error says why that is, if it was not requested.
func (f *Follower) follow(ctx context.Context, relist <-chan struct{}) error {
	f.Sink.Listing()
	version, err := List(ctx, f.Lister, f.Resource, "", f.Sink.Put)
	if err != nil {
		return err
	}
	f.Sink.Listed()
	watching, end := context.WithCancel(ctx)
	defer end()
	go func() {
		select {
		case <-relist:
			end()
		case <-watching.Done():
		}
	}()
	for delay := f.MinRetry; ; delay = min(2*delay, f.MaxRetry) {
		began := time.Now()
		version, err = f.watch(watching, version)
		switch {
		case watching.Err() != nil:
			return nil
		case err == nil, time.Since(began) > 2*f.MaxRetry:
			delay = f.MinRetry
		case apierrors.IsGone(err), apierrors.IsResourceExpired(err), apierrors.IsNotFound(err), errors.Is(err, errUnreadable), delay >= f.MaxRetry:
			return fmt.Errorf("watch %s: %w", f.Resource.Version.GroupResource(), err)
		}
		pause(watching, delay)
	}
}

var errUnreadable = errors.New("an event can't be read")

// watch watches from a resourceVersion, and returns the last one.
func (f *Follower) watch(ctx context.Context, version string) (string, error) {
	seconds := int64(minWatch.Seconds() * (1 + rand.Float64())) //nolint:gosec // not for secrets
	w, err := f.Client.Resource(f.Resource.Version).Watch(ctx, metav1.ListOptions{
		ResourceVersion: version, AllowWatchBookmarks: true, TimeoutSeconds: &seconds,
	})
	if err != nil {
		return version, err
	}
	defer w.Stop()
	for {
		var event watch.Event
		select {
		case <-ctx.Done():
			return version, ctx.Err()
		case e, open := <-w.ResultChan():
			if !open {
				return version, nil
			}
			event = e
		}
		if event.Type == watch.Error {
			return version, apierrors.FromObject(event.Object)
		}
		o, ok := event.Object.(*unstructured.Unstructured)
		if !ok || o.GetResourceVersion() == "" {
			return version, errUnreadable
		}
		switch event.Type {
		case watch.Added, watch.Modified:
			f.Sink.Put(o)
		case watch.Deleted:
			f.Sink.Gone(o)
		default: // a bookmark
		}
		version = o.GetResourceVersion()
	}
}

// List passes all objects of a resource in a namespace, or all for "", to a function, and returns the resourceVersion of the list. After
// an error, some may not have been passed.
func List(ctx context.Context, from Lister, resource catalog.Resource, namespace string, put func(*unstructured.Unstructured)) (string, error) {
	token, limit, largest := "", pageSize, maxPageBytes
	for {
		limited, cancel := context.WithTimeout(ctx, pageTimeout)
		page, err := from.List(limited, resource.Version, namespace, token, limit, largest)
		cancel()
		switch {
		case errors.Is(err, bulkread.ErrTooLarge) && limit > 1:
			limit /= 2
			continue
		case errors.Is(err, bulkread.ErrTooLarge) && largest < maxLargest:
			largest = maxLargest
			continue
		case err != nil:
			return "", err
		}
		for _, item := range page.Items {
			o, err := item.Object(resource.GroupVersionKind())
			if err != nil {
				return "", err
			}
			put(o)
		}
		if token = page.Continue; token == "" {
			return page.ResourceVersion, nil
		}
	}
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
