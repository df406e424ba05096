package s3server

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/gleaner-dev/gleaner/devcluster/gobuild"
)

const (
	cacheVariable = "GLEANER_CACHE" // replaces the user's cache folder
	nestedModule  = "github.com/gleaner-dev/gleaner/test/s3"
)

// Build makes the server's program from source, once per user and version, and
// returns where it is. Progress may be nil. Processes that build at the same
// time each do so, and use the program of one of them.
func Build(ctx context.Context, progress io.Writer) (string, error) {
	source, err := locate()
	if err != nil {
		return "", err
	}
	program, err := cached(source)
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(program); err == nil {
		return program, nil
	}
	if progress == nil {
		progress = io.Discard
	}
	if err := os.MkdirAll(filepath.Dir(program), 0o755); err != nil {
		return "", fmt.Errorf("create cache folder: %w", err)
	}
	if err := build(ctx, source, program, progress); err != nil {
		return "", err
	}
	return program, nil
}

// build renames what it has built into place, so that a killed build leaves
// nothing that looks complete.
func build(ctx context.Context, source, program string, progress io.Writer) error {
	dir, err := os.MkdirTemp(filepath.Dir(program), "building-*")
	if err != nil {
		return fmt.Errorf("create build folder: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	made := filepath.Join(dir, filepath.Base(program))
	if err := gobuild.Run(ctx, gobuild.Build{
		Label: "s3server", Name: "an S3 server", Dir: source, Packages: []string{"."}, Flags: []string{"-ldflags=-s -w"}, Output: made,
		Env: []string{"GOOS=", "GOARCH="}, // what is built runs here
	}, progress); err != nil {
		return err
	}
	if err := os.Rename(made, program); err != nil {
		return fmt.Errorf("put the S3 server in place: %w", err)
	}
	return nil
}

// cached is where the program of this source is, or will be.
func cached(source string) (string, error) {
	base := os.Getenv(cacheVariable)
	if base == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return "", fmt.Errorf("locate cache folder (set %s): %w", cacheVariable, err)
		}
		base = filepath.Join(user, "gleaner")
	}
	hash := sha256.New()
	for _, name := range []string{"go.mod", "go.sum", "main.go"} {
		data, err := os.ReadFile(filepath.Join(source, name))
		if err != nil {
			return "", fmt.Errorf("read the S3 server's source: %w", err)
		}
		hash.Write(data)
	}
	key := strings.Join([]string{hex.EncodeToString(hash.Sum(nil))[:12], runtime.GOOS, runtime.GOARCH}, "-")
	name := "s3"
	if runtime.GOOS == "windows" {
		name += ".exe"
	}
	return filepath.Abs(filepath.Join(base, "s3", key, name))
}

// locate looks next to this source file first, which is right unless the program
// was built with -trimpath or moved to another machine; then upwards from the
// working directory.
func locate() (string, error) {
	below := filepath.Join("test", "s3")
	if _, file, _, ok := runtime.Caller(0); ok && filepath.IsAbs(file) {
		if dir := filepath.Join(filepath.Dir(file), "..", "..", below); isModule(dir) {
			return dir, nil
		}
	}
	wd, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("locate %s: %w", below, err)
	}
	for dir := wd; ; dir = filepath.Dir(dir) {
		if found := filepath.Join(dir, below); isModule(found) {
			return found, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("locate " + below + ": not found above " + wd + "; run from a checkout of Gleaner")
		}
	}
}

// isModule is false for a folder that has the same name in another project.
func isModule(dir string) bool {
	mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	return err == nil && strings.Contains(string(mod), "\nmodule "+nestedModule+"\n")
}
