package sandbox_test

import (
	"bytes"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/gleaner-dev/gleaner/policies/wasm/sandbox"
)

func TestLoad_CompilesOnce(t *testing.T) {
	w := newWorld(t, sandbox.Config{CacheDir: t.TempDir()})
	code := guest().Bytes()
	modules := make([]*sandbox.Module, 100)
	var callers sync.WaitGroup
	for i := range modules {
		callers.Go(func() {
			var err error
			if modules[i], err = w.host.Load(t.Context(), code); err != nil {
				t.Error(err)
			}
		})
	}
	callers.Wait()
	for _, m := range modules {
		if !sandbox.SameCompilation(m, modules[0]) {
			t.Error("a module was compiled twice")
		}
		m.Close()
	}
	if n := w.host.Loaded(); n != 0 {
		t.Errorf("%d modules are still there once all have been closed", n)
	}
}

// cached is a cache with one module in it.
type cached struct{ dir string }

// start loads the module as a new process does.
func (c cached) start(t *testing.T) {
	t.Helper()
	p := newWorld(t, sandbox.Config{CacheDir: c.dir}).pool(t, guest().Bytes(), sandbox.PoolOptions{})
	if _, err := p.Run(t.Context(), calling("write")); err != nil {
		t.Fatal(err)
	}
}

// file returns a file of the cache, with its content.
func (c cached) file(t *testing.T, pattern string) (name string, content []byte, info os.FileInfo) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(c.dir, "wasm", "*", pattern))
	if err != nil || len(files) != 1 {
		t.Fatalf("found %v, %v", files, err)
	}
	if content, err = os.ReadFile(files[0]); err != nil {
		t.Fatal(err)
	}
	if info, err = os.Stat(files[0]); err != nil {
		t.Fatal(err)
	}
	return files[0], content, info
}

func TestCompiledModulesAreKeptOnDisk(t *testing.T) {
	c := cached{t.TempDir()}
	c.start(t)
	const code, seal = "wazero-*/*", "seal"
	t.Run("a module that is there is not compiled again", func(t *testing.T) {
		_, _, first := c.file(t, code)
		c.start(t)
		if _, _, now := c.file(t, code); !os.SameFile(first, now) || !first.ModTime().Equal(now.ModTime()) {
			t.Error("its file has been replaced")
		}
	})
	for _, pattern := range []string{code, seal} {
		for claim, damage := range map[string]func([]byte) []byte{
			"a changed byte": func(b []byte) []byte { b[len(b)/2] ^= 1; return b },
			"a missing end":  func(b []byte) []byte { return b[:len(b)-1] },
			"no content":     func([]byte) []byte { return nil },
		} {
			t.Run("with "+claim+" in "+pattern+" it is compiled again", func(t *testing.T) {
				name, sound, _ := c.file(t, pattern)
				if err := os.WriteFile(name, damage(bytes.Clone(sound)), 0o600); err != nil {
					t.Fatal(err)
				}
				c.start(t)
				if _, now, _ := c.file(t, pattern); !bytes.Equal(now, sound) {
					t.Error("the file is still damaged")
				}
			})
		}
	}
}

func TestACacheThatOthersMayWriteToIsNotUsed(t *testing.T) {
	dir := t.TempDir()
	open := filepath.Join(dir, "wasm")
	if err := os.Mkdir(open, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(open, 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := sandbox.New(sandbox.Config{CacheDir: dir}); err == nil {
		t.Error("it is used")
	}
}
