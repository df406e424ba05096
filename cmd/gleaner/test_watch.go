package main

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/gleaner-dev/gleaner/cmd/gleaner/kubectl"
)

// watchEvery is how often --watch looks at the files.
const watchEvery = 250 * time.Millisecond

// fileState tells two contents of a file apart.
type fileState struct {
	size     int64
	modified time.Time
}

// testOnChange runs the tests, and again whenever a file changes. Only the end of
// the command ends it, and that is no error.
func (o *testOptions) testOnChange(cmd *cobra.Command, paths []string) error {
	if len(paths) == 0 {
		paths = []string{"."}
	}
	for {
		seen := fileStates(paths) // before the run: a change during it counts
		o.testAndTell(cmd, paths)
		if cmd.Context().Err() != nil {
			return nil //nolint:nilerr // the user ended the command
		}
		if _, err := kubectl.Fprintln(cmd.OutOrStdout(), "Watching for changes; press Ctrl-C to end."); err != nil {
			return fmt.Errorf("write: %w", err)
		}
		if !waitForChange(cmd.Context(), paths, seen) {
			return nil
		}
	}
}

// testAndTell runs the tests once. That some failed is told, and ends nothing.
func (o *testOptions) testAndTell(cmd *cobra.Command, paths []string) {
	if err := o.test(cmd, paths); err != nil && cmd.Context().Err() == nil {
		kubectl.TellError(cmd.ErrOrStderr(), cmd.Root().Name(), err)
	}
}

// waitForChange reports whether a file changed before the context ended.
func waitForChange(ctx context.Context, paths []string, seen map[string]fileState) bool {
	ticker := time.NewTicker(watchEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-ticker.C:
			if !maps.Equal(seen, fileStates(paths)) {
				return true
			}
		}
	}
}

// fileStates looks at all that the tests at the paths may read: folders with what
// is below them, and for a file its folder, in which what it names usually is.
// What can't be read counts as absent: the run says why.
func fileStates(paths []string) map[string]fileState {
	states := map[string]fileState{}
	for _, root := range paths {
		info, err := os.Stat(root)
		single := err == nil && !info.IsDir()
		if single {
			root = filepath.Dir(root)
		}
		_ = filepath.WalkDir(root, func(path string, entry fs.DirEntry, unread error) error {
			switch {
			case unread != nil:
			case entry.IsDir() && path != root && (single || hidden(entry.Name())):
				return fs.SkipDir
			case entry.IsDir():
				return nil
			}
			if info, err := os.Stat(path); err == nil {
				states[path] = fileState{info.Size(), info.ModTime()}
			}
			return nil
		})
	}
	return states
}
