package s3store

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/gleaner-dev/gleaner/operator/archive"
	"github.com/gleaner-dev/gleaner/operator/archive/archivetest"
)

// ids returns the entries that a reader sees.
func ids(t *testing.T, prefix string) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	r := openReader(t, prefix)
	defer r.Close()
	err := r.Headers(t.Context(), archive.Query{}, func(h archive.Header) bool { found[h.ID] = true; return true })
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestPut_AFencedWriterStoresNothing(t *testing.T) {
	startServer(t)
	old := openStore(t, "a/")
	before := archivetest.Entry(t, 1)
	if err := old.Put(t.Context(), before); err != nil {
		t.Fatal(err)
	}
	successor := openStore(t, "a/")
	after, late := archivetest.Entry(t, 2), archivetest.Entry(t, 3)
	if err := successor.Put(t.Context(), after); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := old.Put(t.Context(), late); !errors.Is(err, archive.ErrFenced) || !strings.Contains(err.Error(), "run one replica") {
			t.Errorf("error %v, want ErrFenced", err)
		}
	}
	if _, _, err := old.Expire(t.Context(), time.Now().AddDate(10, 0, 0), archive.Limits{MaxBytes: 1}); !errors.Is(err, archive.ErrFenced) {
		t.Errorf("expire: error %v, want ErrFenced", err)
	}
	if got := ids(t, "a/"); len(got) != 2 || !got[before.ID] || !got[after.ID] {
		t.Errorf("entries %v, want %s and %s", got, before.ID, after.ID)
	}
	if got := ids(t, "b/"); len(got) != 0 {
		t.Errorf("another prefix has %v", got)
	}
}

// TestPut_WhileWritersTakeOver: what any of them acknowledged is there, and nothing else.
func TestPut_WhileWritersTakeOver(t *testing.T) {
	startServer(t)
	var mu sync.Mutex
	acknowledged := map[string]bool{}
	var next atomic.Int64
	var all sync.WaitGroup
	for range 4 {
		s := openStore(t, "a/")
		for range 4 {
			all.Go(func() {
				for {
					e := archivetest.Entry(t, int(next.Add(1)))
					err := s.Put(t.Context(), e)
					if errors.Is(err, archive.ErrFenced) {
						return
					}
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					acknowledged[e.ID] = true
					done := len(acknowledged) > 100
					mu.Unlock()
					if done {
						return
					}
				}
			})
		}
		if _, _, err := s.Expire(t.Context(), time.Now(), archive.Limits{}); err != nil && !errors.Is(err, archive.ErrFenced) {
			t.Error(err)
		}
	}
	all.Wait()
	got := ids(t, "a/")
	for id := range acknowledged {
		if !got[id] {
			t.Errorf("entry %s was acknowledged, and is not there", id)
		}
	}
	for id := range got {
		if !acknowledged[id] {
			t.Errorf("entry %s is there, and was not acknowledged", id)
		}
	}
}

// TestPut_AfterALostResponse: the storage has done what the writer believes has failed.
func TestPut_AfterALostResponse(t *testing.T) {
	s := startServer(t)
	proxy := newProxy(t, s)
	store := openStore(t, "a/")
	first, second := archivetest.Entry(t, 1), archivetest.Entry(t, 2)
	proxy.lose.Store(1) // of one attempt: the retry finds what it stored
	if err := store.Put(t.Context(), first); err != nil {
		t.Errorf("a retry: %v", err)
	}
	proxy.lose.Store(attempts)
	lost := archivetest.Entry(t, 3)
	if err := store.Put(t.Context(), lost); err == nil {
		t.Error("a response was invented")
	}
	if err := store.Put(t.Context(), second); err != nil {
		t.Errorf("after a failure: %v", err)
	}
	if err := store.Put(t.Context(), lost); err != nil {
		t.Errorf("what had failed, again: %v", err)
	}
	if got := ids(t, "a/"); len(got) != 3 {
		t.Errorf("%d entries, want 3", len(got))
	}
}

// TestPut_AfterALostResponseAndATakeover: the number of the lost segment became free again,
// because the successor merged and deleted it.
func TestPut_AfterALostResponseAndATakeover(t *testing.T) {
	s := startServer(t)
	proxy := newProxy(t, s)
	old := openStore(t, "a/")
	proxy.lose.Store(attempts)
	lost := archivetest.Entry(t, 1)
	if err := old.Put(t.Context(), lost); err == nil {
		t.Fatal("a response was invented")
	}
	successor := openStore(t, "a/")
	want := map[string]bool{lost.ID: true} // it is durable, though not acknowledged
	for i := range mergeTier + 2 {
		e := archivetest.Entry(t, 10+i)
		if want[e.ID] = true; successor.Put(t.Context(), e) != nil {
			t.Fatal("put")
		}
	}
	if _, _, err := successor.Expire(t.Context(), time.Time{}.AddDate(2000, 0, 0), archive.Limits{}); err != nil {
		t.Fatal(err)
	}
	if n := len(keys(t, "a/")); n > 5 {
		t.Fatalf("%d segments, want them merged", n)
	}
	if err := old.Put(t.Context(), archivetest.Entry(t, 2)); !errors.Is(err, archive.ErrFenced) {
		t.Errorf("error %v, want ErrFenced", err)
	}
	got := ids(t, "a/")
	if len(got) != len(want) {
		t.Errorf("%d entries, want %d", len(got), len(want))
	}
	for id := range want {
		if !got[id] {
			t.Errorf("entry %s is missing", id)
		}
	}
}

// A proxy loses the responses to as many writes as lose says, after the server has done them.
type proxy struct{ lose atomic.Int64 }

// newProxy starts a proxy, and makes it the endpoint.
func newProxy(t *testing.T, s server) *proxy {
	t.Helper()
	p := &proxy{}
	target, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	b, err := openBucket(t.Context(), bucketName, "") // its client trusts the server
	if err != nil {
		t.Fatal(err)
	}
	forward := &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(target); r.Out.Host = r.In.Host },
		Transport: b.transport,
	}
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut && p.lose.Add(-1) >= 0 {
			forward.ServeHTTP(httptest.NewRecorder(), r)
			panic(http.ErrAbortHandler)
		}
		forward.ServeHTTP(w, r)
	}))
	t.Cleanup(func() { h.Close(); b.close() })
	t.Setenv("AWS_ENDPOINT_URL_S3", h.URL)
	return p
}

func TestOpen_SaysWhatToCheck(t *testing.T) {
	s := startServer(t)
	for name, c := range map[string]struct {
		variable, value, bucket string
		want                    []string
	}{
		"missing bucket":    {"AWS_REGION", s.Region, "missing", []string{"NoSuchBucket", "create the bucket"}},
		"wrong secret":      {"AWS_SECRET_ACCESS_KEY", "wrong", bucketName, []string{"check the credentials"}},
		"wrong key":         {"AWS_ACCESS_KEY_ID", "wrong", bucketName, []string{"check the credentials"}},
		"no credentials":    {"AWS_ACCESS_KEY_ID", "", bucketName, []string{"check the credentials"}},
		"no such server":    {"AWS_ENDPOINT_URL_S3", "https://127.0.0.1:1", bucketName, []string{"cannot be reached: check AWS_ENDPOINT_URL_S3"}},
		"no such host":      {"AWS_ENDPOINT_URL_S3", "https://storage.invalid", bucketName, []string{"cannot be reached"}},
		"unknown authority": {"AWS_CA_BUNDLE", "", bucketName, []string{"set AWS_CA_BUNDLE"}},
		"wrong region":      {"AWS_REGION", "eu-west-9", bucketName, []string{"set AWS_REGION"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(c.variable, c.value)
			_, writing := Open(t.Context(), c.bucket, "a/", Options{})
			_, reading := OpenReadOnly(t.Context(), c.bucket, "a/")
			for _, err := range []error{writing, reading} {
				for _, want := range append(c.want, fmt.Sprintf("open archive s3://%s/a/", c.bucket)) {
					if err == nil || !strings.Contains(err.Error(), want) {
						t.Errorf("error %v, want %q", err, want)
					}
				}
			}
		})
	}
	t.Run("no region", func(t *testing.T) {
		t.Setenv("AWS_REGION", "")
		t.Setenv("AWS_ENDPOINT_URL_S3", "")
		if _, err := Open(t.Context(), bucketName, "a/", Options{}); err == nil || !strings.Contains(err.Error(), "set AWS_REGION") {
			t.Errorf("error %v", err)
		}
	})
}

// TestOpen_NeedsConditionalWrites removes the condition from requests, as storage that does not
// know it does.
func TestOpen_NeedsConditionalWrites(t *testing.T) {
	startServer(t)
	b, err := openBucket(t.Context(), bucketName, "a/")
	if err != nil {
		t.Fatal(err)
	}
	drop := middleware.BuildMiddlewareFunc("drop", func(ctx context.Context, in middleware.BuildInput, next middleware.BuildHandler) (middleware.BuildOutput, middleware.Metadata, error) {
		in.Request.(*smithyhttp.Request).Header.Del("If-None-Match")
		return next.HandleBuild(ctx, in)
	})
	defer b.close()
	unconditional := &bucket{name: b.name, prefix: b.prefix, client: s3.New(b.client.Options(), func(o *s3.Options) {
		o.APIOptions = append(o.APIOptions, func(stack *middleware.Stack) error { return stack.Build.Add(drop, middleware.After) })
	})}
	s := &Store{options: Options{}.withDefaults()}
	f := newFooters(unconditional)
	s.reading = reading{bucket: unconditional, blocks: f.blocks, current: f.load}
	if err := s.takeOver(t.Context(), f); err == nil || !strings.Contains(err.Error(), "ignores If-None-Match") {
		t.Errorf("error %v, want one about If-None-Match", err)
	}
}
