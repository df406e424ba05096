package source

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// unfinishedPrefix is the name prefix of a file that is being written.
const unfinishedPrefix = "unfinished-"

// abandonedAge is the age of an unfinished file at which its writer must be gone.
const abandonedAge = time.Hour

// cache stores content on disk by its sha256, in a folder for each namespace.
// Content is verified when it is read, so damaged files do no harm. Several
// processes may share the folder.
type cache struct {
	dir      string // empty: disabled
	maxBytes int64  // bytes

	evicting sync.Mutex // serializes eviction
}

// file returns the path of content. It contains no text from users.
func (c *cache) file(namespace, digest string) string {
	folder := "cluster"
	if namespace != "" {
		folder = "namespace-" + hexSum([]byte(namespace))[:32]
	}
	return filepath.Join(c.dir, folder, digest)
}

// get returns cached content. A damaged file is removed.
func (c *cache) get(namespace, digest string, limit int64) ([]byte, bool) {
	if c.dir == "" {
		return nil, false
	}
	name := c.file(namespace, digest)
	data, err := readLimited(name, limit)
	if err != nil {
		return nil, false
	}
	if hexSum(data) != digest {
		_ = os.Remove(name) // otherwise it will be overwritten
		return nil, false
	}
	c.used(name)
	return data, true
}

// signatureSuffix is the suffix of the files of signatures, after the digest of the image and
// the number of the requirement.
const signatureSuffix = ".sigstore.json"

// getSignature returns a cached signature. It is verified by the caller.
func (c *cache) getSignature(namespace, name string, limit int64) ([]byte, bool) {
	if c.dir == "" {
		return nil, false
	}
	file := c.file(namespace, name) + signatureSuffix
	data, err := readLimited(file, limit)
	if err != nil {
		return nil, false
	}
	c.used(file)
	return data, true
}

// putSignature stores a signature.
func (c *cache) putSignature(namespace, name string, data []byte) error {
	return c.put(namespace, name+signatureSuffix, data)
}

// used records that a file was used.
func (c *cache) used(name string) {
	now := time.Now()
	_ = os.Chtimes(name, now, now) // best effort: the order of eviction depends on it
}

func readLimited(name string, limit int64) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, limit+1))
}

// put stores content under its digest, and evicts older content if necessary.
func (c *cache) put(namespace, digest string, data []byte) error {
	if c.dir == "" {
		return nil
	}
	if int64(len(data)) > c.maxBytes {
		return fmt.Errorf("cache module: its %d bytes exceed the size of the cache", len(data))
	}
	name := c.file(namespace, digest)
	if err := write(name, data); err != nil {
		return fmt.Errorf("cache module: %w", err)
	}
	if err := c.evict(); err != nil {
		return fmt.Errorf("evict modules: %w", err)
	}
	return nil
}

// write writes a file atomically.
func write(name string, data []byte) error {
	folder := filepath.Dir(name)
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(folder, unfinishedPrefix)
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // no effect once it was renamed
	_, err = f.Write(data)
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), name)
}

type cachedFile struct {
	name     string
	size     int64
	lastUsed time.Time
}

// evict evicts the least recently used content until the rest fits.
func (c *cache) evict() error {
	c.evicting.Lock()
	defer c.evicting.Unlock()
	files, err := c.list()
	if err != nil {
		return err
	}
	var total int64
	for _, f := range files {
		total += f.size
	}
	slices.SortFunc(files, func(a, b cachedFile) int { return a.lastUsed.Compare(b.lastUsed) })
	for _, f := range files {
		if total <= c.maxBytes {
			return nil
		}
		if err := os.Remove(f.name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		total -= f.size
	}
	return nil
}

// list returns the cached files, and removes abandoned ones.
func (c *cache) list() ([]cachedFile, error) {
	var files []cachedFile
	err := filepath.WalkDir(c.dir, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return ignoreNotExist(err)
		}
		info, err := entry.Info()
		if err != nil {
			return ignoreNotExist(err)
		}
		if !strings.HasPrefix(entry.Name(), unfinishedPrefix) {
			files = append(files, cachedFile{name, info.Size(), info.ModTime()})
			return nil
		}
		if time.Since(info.ModTime()) > abandonedAge {
			return ignoreNotExist(os.Remove(name))
		}
		return nil
	})
	return files, err
}

// ignoreNotExist ignores the error if another process has removed the file.
func ignoreNotExist(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
