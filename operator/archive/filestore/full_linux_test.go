package filestore

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/gleaner-dev/gleaner/operator/archive"
	"github.com/gleaner-dev/gleaner/operator/archive/archivetest"
)

// limitVariable makes a test run in a process of its own, since the limit is of a process.
const limitVariable = "GLEANER_FILESTORE_LIMIT"

// TestPut_FileCannotGrow limits the size of files, and then raises the limit.
func TestPut_FileCannotGrow(t *testing.T) {
	if os.Getenv(limitVariable) == "" {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestPut_FileCannotGrow$", "-test.v")
		cmd.Env = append(os.Environ(), limitVariable+"=1")
		if output, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(output), "--- PASS") {
			t.Fatalf("%v:\n%s", err, output)
		}
		return
	}
	signal.Ignore(syscall.SIGXFSZ)
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		t.Fatal(err)
	}
	set := func(size uint64) {
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: size, Max: limit.Max}); err != nil {
			t.Fatal(err)
		}
	}
	_ = fillUp(t, t.TempDir(), func() { set(1 << 20) }, func() { set(limit.Cur) })
}

// TestPut_DiskFull fills a file system of its own.
func TestPut_DiskFull(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=2m"); err != nil {
		t.Skipf("mount a small file system: %v: run as root", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	err := fillUp(t, dir, func() {}, func() {
		if err := syscall.Mount("", dir, "", syscall.MS_REMOUNT, "size=8m"); err != nil {
			t.Fatal(err)
		}
	})
	if !strings.Contains(err.Error(), "the disk is full: free space") {
		t.Errorf("error %v, want one that says that the disk is full", err)
	}
}

// fillUp puts entries until one fails, which it returns. All others are stored, and more can
// be when there is room again.
func fillUp(t *testing.T, dir string, limit, raise func()) error {
	t.Helper()
	s := openStore(t, dir)
	limit()
	filler := strings.Repeat("x", 100)
	stored := 0
	var full error
	for ; full == nil && stored < 20000; stored++ {
		full = s.Put(t.Context(), archivetest.EntryOf(t, stored, fmt.Sprint(filler, stored), archive.Header{}))
	}
	if full == nil {
		t.Fatal("there is always room")
	}
	stored--
	wantStored(t, s, stored)
	raise()
	if err := s.Put(t.Context(), archivetest.Entry(t, stored)); err != nil {
		t.Errorf("after there is room: %v", err)
	}
	wantStored(t, s, stored+1)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	s = openStore(t, dir)
	wantStored(t, s, stored+1)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	return full
}

func wantStored(t *testing.T, s *Store, want int) {
	t.Helper()
	found := 0
	err := s.Headers(t.Context(), archive.Query{}, func(h archive.Header) bool {
		if _, err := s.Body(t.Context(), h); err != nil {
			t.Error(err)
		}
		found++
		return true
	})
	if err != nil || found != want {
		t.Errorf("%d entries, %v, want %d", found, err, want)
	}
}

// TestOpen_FolderCannotBeWritten works as a user without rights, also if root runs it.
func TestOpen_FolderCannotBeWritten(t *testing.T) {
	dir := t.TempDir()
	archived := filepath.Join(dir, "archive")
	if err := openStore(t, archived).Close(); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{filepath.Join(archived, fileName), archived, dir, filepath.Dir(dir)} {
		if err := os.Chmod(name, 0o555); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		_ = os.Chmod(filepath.Dir(dir), 0o755)
		_ = os.Chmod(dir, 0o755)
		_ = os.Chmod(archived, 0o755)
	})
	errs := make(chan error, 3)
	go func() {
		runtime.LockOSThread() // the thread ends with the goroutine
		if os.Getuid() == 0 {
			if err := syscall.Setfsuid(65534); err != nil {
				t.Error(err)
			}
		}
		_, existing := Open(archived, impatient)
		errs <- existing
		_, created := Open(filepath.Join(dir, "new"), impatient)
		errs <- created
		r, reading := OpenReadOnly(archived, impatient)
		if reading == nil {
			reading = r.Close()
		}
		errs <- reading
	}()
	for _, doing := range []string{"open", "create"} {
		if err := <-errs; !errors.Is(err, archive.ErrReadOnly) || !strings.Contains(err.Error(), "mount the volume for writing") {
			t.Errorf("%s: error %v, want ErrReadOnly", doing, err)
		}
	}
	if err := <-errs; err != nil {
		t.Errorf("read: %v", err)
	}
}
