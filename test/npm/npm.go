// Package npm installs what package.json files in this tree depend on, for tests, and runs their scripts. What is installed stays in the
// cache folder, by the content of package-lock.json.
package npm

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// RequiredVariable is the environment variable that makes a missing npm, or a registry that can't be reached, a failure instead of a
// skipped test, if it is "required".
const RequiredVariable = "GLEANER_TEST_NPM"

const (
	manifest = "package.json"
	lock     = "package-lock.json"
	modules  = "node_modules"
)

// Install returns the folder node_modules with what a folder depends on, exactly as in its package-lock.json. If it is not in the cache
// and can't be installed, the test is skipped, or fails if the environment variable is "required".
func Install(t testing.TB, folder, variable string) string {
	t.Helper()
	installed, err := install(t, folder)
	if err != nil {
		unavailable(t, variable, err)
	}
	return installed
}

// unavailable ends a test that can't be run.
func unavailable(t testing.TB, variable string, err error) {
	t.Helper()
	if os.Getenv(variable) == "required" {
		t.Fatalf("%s=required: %v", variable, err)
	}
	t.Skipf("%v; with %s=required, this is a failure", err, variable)
}

func install(t testing.TB, folder string) (string, error) {
	t.Helper()
	locked, err := os.ReadFile(filepath.Join(folder, lock))
	if err != nil {
		t.Fatal(err)
	}
	base, err := cacheFolder()
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(locked)
	target := filepath.Join(base, "npm-"+hex.EncodeToString(sum[:8]))
	if _, err := os.Stat(target); err == nil {
		return filepath.Join(target, modules), nil
	}
	// Another process may install the same at the same time: the first one to finish renames its folder.
	temporary, err := os.MkdirTemp(base, "npm-new-") //nolint:usetesting // renamed, so it has to be in the same file system
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(temporary)
	for _, name := range []string{manifest, lock} {
		if err := copyFile(filepath.Join(folder, name), filepath.Join(temporary, name)); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := command(t, temporary, "ci", "--ignore-scripts", "--no-audit", "--no-fund").CombinedOutput(); err != nil {
		return "", errors.New(strings.TrimSpace(fmt.Sprintf("install what %s depends on: %v\n%s", folder, err, out)))
	}
	if err := os.Rename(temporary, target); err != nil && !errors.Is(err, fs.ErrExist) {
		t.Fatal(err)
	}
	return filepath.Join(target, modules), nil
}

// Run runs a script of a folder's package.json in a copy of the folder, and returns the copy. What the folder depends on is installed
// as by Install.
func Run(t testing.TB, folder, script string) string {
	t.Helper()
	installed := Install(t, folder, RequiredVariable)
	if _, err := exec.LookPath("npm"); err != nil { // it is in the cache
		unavailable(t, RequiredVariable, err)
	}
	to := t.TempDir()
	err := filepath.WalkDir(folder, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(folder, name)
		switch {
		case err != nil:
			return err
		case entry.Name() == modules:
			return fs.SkipDir
		case entry.IsDir():
			return os.MkdirAll(filepath.Join(to, relative), 0o700)
		case strings.HasSuffix(name, ".wasm"): // built by a reader
			return nil
		}
		return copyFile(name, filepath.Join(to, relative))
	})
	if err == nil {
		err = os.Symlink(installed, filepath.Join(to, modules))
	}
	if err != nil {
		t.Fatal(err)
	}
	if out, err := command(t, to, "run", script).CombinedOutput(); err != nil {
		t.Fatalf("npm run %s in %s: %v\n%s", script, folder, err, out)
	}
	return to
}

func command(t testing.TB, folder string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(t.Context(), "npm", args...)
	cmd.Dir = folder
	return cmd
}

// cacheFolder returns the folder where devcluster keeps programs, which exists.
func cacheFolder() (string, error) {
	base := os.Getenv("GLEANER_CACHE")
	if base == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return "", err
		}
		base = filepath.Join(user, "gleaner")
	}
	return base, os.MkdirAll(base, 0o755)
}

func copyFile(from, to string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, data, 0o600)
}
