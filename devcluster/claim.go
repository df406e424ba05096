package devcluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

const (
	tempPattern = "gleaner-devcluster-*"
	claimName   = "claim"
)

// claimFolder marks a temporary folder as in use, by a lock on a file in it
// that the system releases when this process dies. The file takes its name
// when it is locked already, so that no sweep finds it unlocked.
func claimFolder(dir string) (*os.File, error) {
	path := filepath.Join(dir, claimName)
	file, err := os.OpenFile(path+".new", os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("claim cluster folder: %w", err)
	}
	_, err = tryLock(file)
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		return nil, fmt.Errorf("claim cluster folder: %w", errors.Join(err, file.Close()))
	}
	return file, nil
}

// sweep removes the temporary folders of clusters whose process was killed
// before Stop; each may hold 100 MB. It keeps folders that it cannot lock or
// remove, and the logs of a failed start, which have no claim.
func sweep() {
	if !hasLocks { // or it would remove those in use
		return
	}
	claims, err := filepath.Glob(filepath.Join(os.TempDir(), tempPattern, claimName))
	if err != nil {
		return
	}
	for _, claim := range claims {
		file, err := os.OpenFile(claim, os.O_RDWR, 0)
		if err != nil {
			continue
		}
		if locked, err := tryLock(file); err == nil && locked {
			_ = os.RemoveAll(filepath.Dir(claim))
		}
		_ = file.Close()
	}
}
