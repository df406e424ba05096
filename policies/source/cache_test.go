package source_test

import (
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gleaner-dev/gleaner/policies/source"
)

func TestImage_ByDigestOutlivesItsRegistry(t *testing.T) {
	server := registered(t)
	image := server.pushWasm(t, module("x"))
	folder := t.TempDir()
	first := fetch(t, fetcher(t, folder, source.Limits{}), wasmImage(image))
	before := server.asked.Load()
	server.Close()
	if diff := cmp.Diff(first, fetch(t, fetcher(t, folder, source.Limits{}), wasmImage(image))); diff != "" {
		t.Error(diff)
	}
	if server.asked.Load() != before {
		t.Error("the registry was asked")
	}
	elsewhere := wasmImage(image)
	elsewhere.Namespace = "tenant"
	if e := refused(t, fetcher(t, folder, source.Limits{}), elsewhere, source.Unreachable); !e.Temporary {
		t.Error("a registry that is away will not come back")
	}
	refused(t, fetcher(t, folder, source.Limits{}), wasmImage(server.host()+"/modules/a:v1"), source.Unreachable)
}

func TestCache_RefetchesDamaged(t *testing.T) {
	server := registered(t)
	image := server.pushWasm(t, module("x"))
	for claim, damage := range map[string]func(name string) error{
		"other bytes": func(name string) error { return os.WriteFile(name, []byte("other"), 0o600) },
		"cut short":   func(name string) error { return os.Truncate(name, 3) },
		"made longer": func(name string) error { return os.Truncate(name, 1<<20) },
		"gone":        os.Remove,
		"unreadable":  func(name string) error { return os.Chmod(name, 0) }, // root reads it all the same
	} {
		t.Run(claim, func(t *testing.T) {
			folder := t.TempDir()
			first := fetch(t, fetcher(t, folder, source.Limits{}), wasmImage(image))
			n := every(t, folder, func(name string) {
				if err := damage(name); err != nil {
					t.Fatal(err)
				}
			})
			if n != 2 {
				t.Errorf("%d files are kept, want the manifest and the layer", n)
			}
			if diff := cmp.Diff(first, fetch(t, fetcher(t, folder, source.Limits{}), wasmImage(image))); diff != "" {
				t.Error(diff)
			}
			before := server.asked.Load()
			fetch(t, fetcher(t, folder, source.Limits{}), wasmImage(image))
			if server.asked.Load() != before {
				t.Error("it was not repaired")
			}
		})
	}
}

func TestCache_EvictsLeastRecentlyUsed(t *testing.T) {
	folder := t.TempDir()
	f := fetcher(t, folder, source.Limits{Cache: 2500})
	codes, sources, servers := [3][]byte{}, [3]source.Source{}, [3]*site{}
	for i := range codes {
		codes[i] = module(strings.Repeat(string(rune('a'+i)), 1000))
		servers[i] = serve(t, gives(codes[i]))
		sources[i] = wasmURL(servers[i].URL)
		sources[i].SHA256 = sum(codes[i])
	}
	fetch(t, f, sources[0])
	fetch(t, f, sources[1])
	age(t, folder)
	fetch(t, f, sources[0]) // used again
	fetch(t, f, sources[2])
	for _, i := range []int{0, 2, 1} { // fetching 1 makes room once more
		fetch(t, f, sources[i])
	}
	for i, want := range []int64{1, 2, 1} {
		if got := servers[i].asked.Load(); got != want {
			t.Errorf("server %d was asked %d times, want %d", i, got, want)
		}
	}
	large := wasmURL(serve(t, gives(module(strings.Repeat("x", 3000)))).URL)
	large.SHA256 = sum(module(strings.Repeat("x", 3000)))
	got, err := f.Fetch(t.Context(), large)
	if err != nil || got.CacheErr == nil || !strings.Contains(got.CacheErr.Error(), "exceed the size of the cache") {
		t.Errorf("what does not fit at all: %v, %v", err, got.CacheErr)
	}
}

func TestCache_IsUsedByManyAtOnce(t *testing.T) {
	folder := t.TempDir()
	limits := source.Limits{Cache: 3500} // room for three
	fetchers := []*source.Fetcher{fetcher(t, folder, limits), fetcher(t, folder, limits)}
	const modules, rounds = 6, 10
	var sources [modules]source.Source
	var codes [modules][]byte
	for i := range modules {
		codes[i] = module(strings.Repeat(string(rune('a'+i)), 1000))
		sources[i] = wasmURL(serve(t, gives(codes[i])).URL)
		sources[i].SHA256 = sum(codes[i])
	}
	var all sync.WaitGroup
	for i := range modules {
		for _, f := range fetchers {
			all.Go(func() {
				for range rounds {
					gets(t, f, sources[i], codes[i])
				}
			})
		}
	}
	all.Wait()
	fetch(t, fetchers[0], sources[0])
	if n := every(t, folder, func(string) {}); n > 3 {
		t.Errorf("%d modules are kept, and there is room for three", n)
	}
}
