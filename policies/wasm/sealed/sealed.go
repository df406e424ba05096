// Package sealed keeps what was compiled in folders of a cache, each with a seal: the hash of its
// content. What is read is executed, so a folder with a wrong seal is removed and never used. The
// seal detects damage; permissions protect the folder from other users.
package sealed

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Cache is a folder of sealed folders, by key. Processes may share it.
type Cache struct {
	root string
}

const (
	sealName    = "seal"
	beginPrefix = "new-"
	maxCached   = 100 // folders; the oldest are evicted
	abandoned   = time.Hour
)

// Open opens the Cache in a folder, which is created.
func Open(root string) (*Cache, error) {
	c := &Cache{root: root}
	if err := os.MkdirAll(c.root, 0o700); err != nil {
		return nil, fmt.Errorf("open module cache: %w", err)
	}
	info, err := os.Lstat(c.root)
	if err != nil {
		return nil, fmt.Errorf("open module cache: %w", err)
	}
	if !info.IsDir() || info.Mode().Perm()&0o022 != 0 {
		return nil, fmt.Errorf("open module cache: %s must be a folder that only its owner may write to", c.root)
	}
	return c, nil
}

// Key returns the key of what is compiled from some content.
func Key(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

// Lookup returns the folder of a key if its seal is valid.
func (c *Cache) Lookup(key string) (folder string, ok bool) {
	folder = filepath.Join(c.root, key)
	want, err := os.ReadFile(filepath.Join(folder, sealName))
	if err == nil {
		var have string
		if have, err = hashFolder(folder); err == nil && have == string(want) {
			return folder, true
		}
	}
	c.Remove(key)
	return "", false
}

// Remove removes what has a key.
func (c *Cache) Remove(key string) { _ = os.RemoveAll(filepath.Join(c.root, key)) }

// Create creates a folder to compile into.
func (c *Cache) Create() (string, error) { return os.MkdirTemp(c.root, beginPrefix) }

// Commit seals a folder that Create has returned, and keeps it under a key unless another process
// has done so. If what was written to it is not complete, ok is false, and it is removed.
func (c *Cache) Commit(folder, key string, ok bool) {
	defer func() { _ = os.RemoveAll(folder) }()
	if !ok {
		return
	}
	hash, err := hashFolder(folder)
	if err == nil {
		err = os.WriteFile(filepath.Join(folder, sealName), []byte(hash), 0o600)
	}
	if err == nil {
		_ = os.Rename(folder, filepath.Join(c.root, key))
	}
	c.prune()
}

// prune removes the oldest folders, and folders that other processes left
// unfinished.
func (c *Cache) prune() {
	entries, err := os.ReadDir(c.root)
	if err != nil {
		return
	}
	type entry struct {
		name string
		at   time.Time
	}
	var kept []entry
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			continue
		}
		if !strings.HasPrefix(e.Name(), beginPrefix) {
			kept = append(kept, entry{e.Name(), info.ModTime()})
		} else if time.Since(info.ModTime()) > abandoned {
			c.Remove(e.Name())
		}
	}
	slices.SortFunc(kept, func(a, b entry) int { return b.at.Compare(a.at) })
	for _, old := range kept[min(maxCached, len(kept)):] {
		c.Remove(old.name)
	}
}

var errIrregular = errors.New("neither a file nor a folder")

// hashFolder hashes the names and contents of all files except the seal.
func hashFolder(folder string) (string, error) {
	all := sha256.New()
	err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || path == filepath.Join(folder, sealName) {
			return err
		}
		if !d.Type().IsRegular() {
			return errIrregular
		}
		name, err := filepath.Rel(folder, path)
		if err != nil {
			return err
		}
		sum, err := hashFile(path)
		_, _ = fmt.Fprintf(all, "%s %x\n", filepath.ToSlash(name), sum)
		return err
	})
	return hex.EncodeToString(all.Sum(nil)), err
}

func hashFile(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	sum := sha256.New()
	_, err = io.Copy(sum, file)
	return sum.Sum(nil), err
}
