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

// unfinished begins the name of a file that is being written.
const unfinished = "unfinished-"

// abandoned is how old such a file is when its writer must be gone.
const abandoned = time.Hour

// cache keeps content on disk under the sha256 that it has, in a folder for each
// namespace. What is read is checked, so it may be damaged in any way. Other
// processes may use the same folder.
type cache struct {
	dir  string // empty: nothing is kept
	most int64  // bytes

	trimming sync.Mutex // covers the choice of what to remove
}

// file is where the content is. Nothing of the name is as somebody wrote it.
func (c *cache) file(namespace, digest string) string {
	folder := "cluster"
	if namespace != "" {
		folder = "namespace-" + hexSum([]byte(namespace))[:32]
	}
	return filepath.Join(c.dir, folder, digest)
}

// get returns what is kept. A damaged file is removed.
func (c *cache) get(namespace, digest string, limit int64) ([]byte, bool) {
	if c.dir == "" {
		return nil, false
	}
	name := c.file(namespace, digest)
	data, err := readAtMost(name, limit)
	if err != nil {
		return nil, false
	}
	if hexSum(data) != digest {
		_ = os.Remove(name) // or it is written over
		return nil, false
	}
	now := time.Now()
	_ = os.Chtimes(name, now, now) // the order of removal suffers if it can't be noted
	return data, true
}

func readAtMost(name string, limit int64) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, limit+1))
}

// put keeps content that has the digest, and makes room for it.
func (c *cache) put(namespace, digest string, data []byte) error {
	if c.dir == "" {
		return nil
	}
	if int64(len(data)) > c.most {
		return fmt.Errorf("keep module: its %d bytes are more than the whole cache may have", len(data))
	}
	name := c.file(namespace, digest)
	if err := write(name, data); err != nil {
		return fmt.Errorf("keep module: %w", err)
	}
	if err := c.trim(); err != nil {
		return fmt.Errorf("make room for modules: %w", err)
	}
	return nil
}

// write never shows an unfinished file under the name.
func write(name string, data []byte) error {
	folder := filepath.Dir(name)
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(folder, unfinished)
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // nothing is there once it was renamed
	_, err = f.Write(data)
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), name)
}

type kept struct {
	name string
	size int64
	used time.Time
}

// trim removes what was not used for the longest time, until the rest fits.
func (c *cache) trim() error {
	c.trimming.Lock()
	defer c.trimming.Unlock()
	files, err := c.list()
	if err != nil {
		return err
	}
	var total int64
	for _, f := range files {
		total += f.size
	}
	slices.SortFunc(files, func(a, b kept) int { return a.used.Compare(b.used) })
	for _, f := range files {
		if total <= c.most {
			return nil
		}
		if err := os.Remove(f.name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		total -= f.size
	}
	return nil
}

// list is what is kept. Files that a writer has left behind go.
func (c *cache) list() ([]kept, error) {
	var files []kept
	err := filepath.WalkDir(c.dir, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return ignoreGone(err)
		}
		info, err := entry.Info()
		if err != nil {
			return ignoreGone(err)
		}
		if !strings.HasPrefix(entry.Name(), unfinished) {
			files = append(files, kept{name, info.Size(), info.ModTime()})
			return nil
		}
		if time.Since(info.ModTime()) > abandoned {
			return ignoreGone(os.Remove(name))
		}
		return nil
	})
	return files, err
}

// ignoreGone passes over a file that another process has removed meanwhile.
func ignoreGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
