package test

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/gleaner-dev/gleaner/internal/cli/kubectl"
	"github.com/gleaner-dev/gleaner/internal/cli/printer"
)

// watchInterval is the interval at which --watch checks the files.
const watchInterval = 250 * time.Millisecond

// fileState detects changes of a file.
type fileState struct {
	size     int64
	modified time.Time
}

// runOnChange runs the tests, and again after each change of a file, until the context is
// canceled, which is not an error.
func (o *options) runOnChange(cmd *cobra.Command, paths []string) error {
	if len(paths) == 0 {
		paths = []string{"."}
	}
	for {
		seen := fileStates(paths) // before the run, so that changes during the run are detected
		o.runAndReport(cmd, paths)
		if cmd.Context().Err() != nil {
			return nil //nolint:nilerr // interrupted by the user
		}
		if _, err := printer.Fprintln(cmd.OutOrStdout(), "Watching for changes; press Ctrl-C to stop."); err != nil {
			return fmt.Errorf("write: %w", err)
		}
		if !waitForChange(cmd.Context(), paths, seen) {
			return nil
		}
	}
}

// runAndReport runs the tests once, and prints the error, if any.
func (o *options) runAndReport(cmd *cobra.Command, paths []string) {
	if err := o.test(cmd, paths); err != nil && cmd.Context().Err() == nil {
		kubectl.PrintError(cmd.ErrOrStderr(), cmd.Root().Name(), err)
	}
}

// waitForChange reports whether a file changed before the context ended.
func waitForChange(ctx context.Context, paths []string, seen map[string]fileState) bool {
	ticker := time.NewTicker(watchInterval)
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

// fileStates returns the states of all files that the tests at the paths may read: directories
// recursively, and for a file its directory, which usually contains the modules that it names.
// Unreadable files are ignored; the run reports them.
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
			case entry.IsDir() && path != root && (single || isHidden(entry.Name())):
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
