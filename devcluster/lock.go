package devcluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// lockFile holds path's lock until the returned function is called or the
// process ends. The file stays: removing it would let a waiter lock a file
// that no longer has a name.
func lockFile(ctx context.Context, path string, progress io.Writer) (func(), error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open build lock: %w", err)
	}
	ticker := time.NewTicker(lockInterval)
	defer ticker.Stop()
	for waited := false; ; waited = true {
		locked, err := tryLock(file)
		if err != nil {
			return nil, fmt.Errorf("take build lock %s: %w", path, errors.Join(err, file.Close()))
		}
		if locked {
			return func() { _ = file.Close() }, nil
		}
		if !waited {
			fmt.Fprintln(progress, "devcluster: waiting for the build of another process")
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for build lock %s: %w", path, errors.Join(ctx.Err(), file.Close()))
		}
	}
}
