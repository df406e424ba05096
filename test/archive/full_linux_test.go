package archive

import (
	"math"
	"testing"

	"golang.org/x/sys/unix"
)

// limitFiles makes the writes of a process fail beyond so many bytes of a file, as those to a full
// disk do; 0: no limit.
func limitFiles(t *testing.T, pid int, bytes uint64) {
	t.Helper()
	limit := unix.Rlimit{Cur: bytes, Max: math.MaxUint64}
	if bytes == 0 {
		limit.Cur = math.MaxUint64
	}
	if err := unix.Prlimit(pid, unix.RLIMIT_FSIZE, &limit, nil); err != nil {
		t.Fatal(err)
	}
}

// page is a size of files that leaves no room for anything in an archive.
const page = 4096

func TestOperator_DiskFull_NothingIsLost(t *testing.T) {
	e, folder := newEnv(t, primary.start(t)), t.TempDir()
	g := e.operate(t, "file://"+folder)
	s := newStoreTrouble(e)
	limitFiles(t, g.PID(), page)
	s.deleteAll()
	s.expectHeld("too large")
	limitFiles(t, g.PID(), 0)
	s.expectArchived()
	g.end()
	s.check("file://" + folder)
	s.corrupt(folder)
}
