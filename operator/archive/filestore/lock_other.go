//go:build !unix

package filestore

import (
	"errors"
	"os"
	"time"
)

// lock leaves locking to bbolt, which does it after the check here.
func lock(*os.File, bool, time.Duration) (bool, error) { return true, nil }

func isReadOnly(err error) bool { return errors.Is(err, os.ErrPermission) }

func isFull(error) bool { return false }

func syncDir(string) error { return nil }
