package rego

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/gleaner-dev/gleaner/hostabi"
)

func openEngine(t *testing.T, dir string) *Engine {
	t.Helper()
	e, err := New(Config{CacheDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return e
}

func compileWith(t *testing.T, e *Engine, files ...File) Compiled {
	t.Helper()
	c, err := e.Compile(t.Context(), files)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

var orphan = File{"keep.rego", `package gleaner

propagate := {"decision": "Orphan"}
`}

// What is in the cache under the key of a policy is recognized as another policy.
func TestCompile_IsCached(t *testing.T) {
	dir := t.TempDir()
	first := openEngine(t, dir)
	if first.cache.program == "" {
		t.Skip("the program can't be identified on this operating system")
	}
	want := compileWith(t, first, keep)
	if got := compileWith(t, openEngine(t, dir), keep); !slices.Equal(got.Code, want.Code) || !slices.Equal(got.Hooks, want.Hooks) || got.Needs != want.Needs || got.Digest != want.Digest {
		t.Errorf("got %v and %s of %d bytes, want %v and %s of %d bytes", got.Hooks, got.Needs, len(got.Code), want.Hooks, want.Needs, len(want.Code))
	}
	other, err := compileFiles(t.Context(), []File{orphan})
	if err != nil {
		t.Fatal(err)
	}
	first.cache.folders.Remove(first.cache.key([]File{keep}))
	first.cache.put([]File{keep}, other)
	if got := compileWith(t, openEngine(t, dir), keep); !slices.Equal(got.Hooks, []hostabi.Hook{hostabi.HookPropagate}) {
		t.Errorf("it was compiled again: %v", got.Hooks)
	}
}

func TestCompile_IsNotCachedFor(t *testing.T) {
	for name, change := range map[string]func(e *Engine, files []File) []File{
		"another program": func(e *Engine, files []File) []File { e.cache.program += "x"; return files },
		"another text":    func(_ *Engine, files []File) []File { files[0].Text += "\n"; return files },
		"another name":    func(_ *Engine, files []File) []File { files[0].Name = "other.rego"; return files },
		"another test": func(_ *Engine, files []File) []File {
			return append(files, File{"a_test.rego", "package gleaner\n"})
		},
		"a damaged folder": func(e *Engine, files []File) []File {
			folder, _ := e.cache.folders.Lookup(e.cache.key(files))
			if err := os.WriteFile(filepath.Join(folder, codeFile), []byte("damaged"), 0o600); err != nil {
				panic(err)
			}
			return files
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := openEngine(t, t.TempDir())
			if e.cache.program == "" {
				t.Skip("the program can't be identified on this operating system")
			}
			compileWith(t, e, keep)
			if _, ok := e.cache.get([]File{keep}); !ok {
				t.Fatal("it is not cached at all")
			}
			if _, ok := e.cache.get(change(e, []File{keep})); ok {
				t.Error("it is cached")
			}
		})
	}
}

func TestCompile_IsNotCachedForAnUnknownProgram(t *testing.T) {
	var c compiledCache
	c.put([]File{keep}, compiled{code: []byte("code")})
	if _, ok := c.get([]File{keep}); ok {
		t.Error("it is cached")
	}
}

func TestDescriptionOf_IsOfWellFormedNotes(t *testing.T) {
	note := func(name, description uint32, rest string) []byte {
		b := binary.LittleEndian.AppendUint32(nil, name)
		b = binary.LittleEndian.AppendUint32(b, description)
		return append(binary.LittleEndian.AppendUint32(b, 4), rest...)
	}
	for want, data := range map[string][]byte{
		"id": note(4, 2, "Go\x00\x00id\x00\x00"),
		"":   note(4, 9, "Go\x00\x00id"),
	} {
		if got := descriptionOf(data, binary.LittleEndian); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	for _, data := range [][]byte{nil, []byte("short"), note(1<<32-1, 1<<32-1, "")} {
		if got := descriptionOf(data, binary.LittleEndian); got != "" {
			t.Errorf("got %q", got)
		}
	}
}
