package docs

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// trees are the copies of this checkout, one for each document. The first builds the
// command, as it says, and the others start with what it built: make finds it up to
// date.
var trees struct {
	once   sync.Once
	folder string   // of TestMain's
	files  []string // from the root
	binary string   // that was built, once it is
	err    error
}

// newTree copies the checkout, without what git leaves out.
func newTree(t *testing.T, name string) string {
	t.Helper()
	trees.once.Do(func() {
		trees.files, trees.err = listFiles()
	})
	if trees.err != nil {
		t.Fatal(trees.err)
	}
	folder := filepath.Join(trees.folder, strings.NewReplacer("/", "-", ".", "-").Replace(name), "gleaner")
	for _, file := range trees.files {
		if err := copyFile(filepath.Join(root, file), filepath.Join(folder, file)); err != nil {
			t.Fatal(err)
		}
	}
	if trees.binary != "" {
		if err := copyFile(trees.binary, filepath.Join(folder, "bin/gleaner")); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

// built remembers that the command is in a tree.
func built(folder string) {
	if path := filepath.Join(folder, "bin/gleaner"); trees.binary == "" && exists(path) {
		trees.binary = path
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// listFiles returns what a clone would have, and what is not committed yet.
func listFiles() ([]string, error) {
	list := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	list.Dir = root
	out, err := list.Output()
	if err != nil {
		return nil, err
	}
	var files []string
	for _, file := range strings.Split(strings.TrimRight(string(out), "\x00"), "\x00") {
		if exists(filepath.Join(root, file)) { // it may be deleted, and not committed
			files = append(files, file)
		}
	}
	return files, nil
}

// copyFile keeps the mode and links. It makes the folder.
func copyFile(from, to string) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	info, err := os.Lstat(from)
	if err != nil {
		return err
	}
	if info.Mode()&os.ModeSymlink != 0 {
		target, err := os.Readlink(from)
		return errors.Join(err, os.Symlink(target, to))
	}
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, data, info.Mode().Perm())
}

// ourCache is where programs are kept that are built once.
func ourCache(t *testing.T) string {
	t.Helper()
	if cache := os.Getenv("GLEANER_CACHE"); cache != "" {
		return cache
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(cache, "gleaner")
}
