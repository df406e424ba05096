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

// trees are copies of this checkout, one for each document. The first builds the
// command, and the others start with its build: make considers it up to
// date.
var trees struct {
	once   sync.Once
	folder string   // of TestMain's
	files  []string // from the root
	bin    string   // the directory with the programs, once they are built
	err    error
}

// newTree copies the checkout, without ignored files.
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
	for _, name := range programs {
		if trees.bin == "" {
			break
		}
		if err := linkFile(filepath.Join(trees.bin, name), filepath.Join(folder, "bin", name)); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

// programs are what make build builds, into bin, the last one last.
var programs = []string{"gleaner", "gleaner-dev"}

// recordBuild records that a tree has the programs.
func recordBuild(folder string) {
	bin := filepath.Join(folder, "bin")
	if trees.bin == "" && exists(filepath.Join(bin, programs[len(programs)-1])) {
		trees.bin = bin
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// listFiles returns the tracked files and those not ignored.
func listFiles() ([]string, error) {
	list := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	list.Dir = root
	out, err := list.Output()
	if err != nil {
		return nil, err
	}
	var files []string
	for _, file := range strings.Split(strings.TrimRight(string(out), "\x00"), "\x00") {
		if exists(filepath.Join(root, file)) { // may be deleted without a commit
			files = append(files, file)
		}
	}
	return files, nil
}

// copyFile copies a file with its mode, or a link, and creates the folder.
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

// linkFile has another name for a program, which is large. What builds it again writes a new file.
func linkFile(from, to string) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	return os.Link(from, to)
}

// toolCache returns the cache for programs that are built once.
func toolCache(t *testing.T) string {
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
