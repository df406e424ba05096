package archivetest

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/gleaner-dev/gleaner/operator/archive"
)

func putCanBeReadBack(t *testing.T, p Place) {
	s := p.Open(t)
	all := entries(t, 3)
	put(t, s, all[0])
	put(t, s, all[1:]...)
	put(t, s) // of nothing
	wantEntries(t, s, archive.Query{}, all[2], all[1], all[0])
	closeStore(t, s)
	s = p.Open(t)
	wantEntries(t, s, archive.Query{}, all[2], all[1], all[0])
	_, err := s.Body(t.Context(), Entry(t, 9).Header)
	wantError(t, err, archive.ErrNotFound)
	closeStore(t, s)
	r := p.Reader(t)
	wantEntries(t, r, archive.Query{}, all[2], all[1], all[0])
	closeStore(t, r)
}

func putLeavesWhatIsThere(t *testing.T, p Place) {
	s := p.Open(t)
	defer closeStore(t, s)
	e := Entry(t, 1)
	put(t, s, e)
	put(t, s, e, e)
	wantEntries(t, s, archive.Query{}, e)
	other := EntryOf(t, 1, "another content", archive.Header{})
	other.ID = e.ID
	if err := s.Put(t.Context(), Entry(t, 2), other); err == nil {
		t.Error("another entry with the same ID is accepted")
	}
	wantEntries(t, s, archive.Query{}, e)
}

func putRefusesWhatIsInvalid(t *testing.T, p Place) {
	s := p.Open(t)
	defer closeStore(t, s)
	corrupt := Entry(t, 1)
	corrupt.Body = append([]byte("x"), corrupt.Body...)
	wantError(t, s.Put(t.Context(), Entry(t, 2), corrupt), archive.ErrCorrupt)

	large := Entry(t, 3)
	large.Body = make([]byte, archive.MaxBodyBytes+1)
	large.Size, large.Content = int64(len(large.Body)), archive.DigestOf(large.Body)
	wantError(t, s.Put(t.Context(), large), archive.ErrTooLarge)
	wantError(t, s.Append(t.Context(), archive.Record{Time: start, JSON: make([]byte, archive.MaxRecordBytes+1)}), archive.ErrTooLarge)

	later := Entry(t, 4)
	later.Time = later.Time.AddDate(0, 0, 1)
	if err := s.Put(t.Context(), later); err == nil {
		t.Error("an ID of another time is accepted")
	}
	wantEntries(t, s, archive.Query{})
}

func putStoresEqualBodiesOnce(t *testing.T, p Place) {
	s := p.Open(t)
	defer closeStore(t, s)
	first := Entry(t, 1)
	again := EntryOf(t, 1, "content 1", archive.Header{})
	put(t, s, first, again)
	u, err := s.Usage(t.Context())
	if err != nil || u.Entries != 2 || u.Bytes != int64(len(first.Body)) {
		t.Errorf("usage %+v, %v, want 2 entries of %d bytes", u, err, len(first.Body))
	}
	wantEntries(t, s, archive.Query{}, again, first)
}

// locationVariable makes a test program put entries until it is killed.
const locationVariable = "GLEANER_ARCHIVETEST_LOCATION"

// Child does what a test wants of a child process, and does not return then. TestMain calls it
// before anything else.
func Child(open func(location string) (archive.Store, error)) {
	location := os.Getenv(locationVariable)
	if location == "" {
		return
	}
	if err := putUntilKilled(location, open); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(1)
}

const (
	writers      = 8
	acknowledged = 200 // entries, before the kill
)

// putUntilKilled prints the ID of each entry when it is stored.
func putUntilKilled(location string, open func(location string) (archive.Store, error)) error {
	s, err := open(location)
	if err != nil {
		return err
	}
	var out sync.Mutex
	var all sync.WaitGroup
	errs := make(chan error, writers)
	for w := range writers {
		all.Go(func() {
			for i := w; ; i += writers {
				e := Entry(childTest{}, i)
				if err := s.Put(childTest{}.Context(), e); err != nil {
					errs <- err
					return
				}
				out.Lock()
				fmt.Fprintln(os.Stdout, e.ID)
				out.Unlock()
			}
		})
	}
	all.Wait()
	return <-errs
}

func putIsDurableAfterKill(t *testing.T, p Place) {
	closeStore(t, p.Open(t))
	for range 3 {
		ids := killedWriter(t, p)
		s := p.Open(t)
		stored := map[string]archive.Header{}
		found, err := headers(t, s, archive.Query{}, noLimit)
		if err != nil {
			t.Fatal(err)
		}
		for _, h := range found {
			stored[h.ID] = h
		}
		for _, id := range ids {
			h, ok := stored[id]
			if !ok {
				t.Fatalf("entry %s was acknowledged, and is not there", id)
			}
			body, err := s.Body(t.Context(), h)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := archive.Open(h, body); err != nil {
				t.Fatal(err)
			}
		}
		closeStore(t, s)
	}
}

// killedWriter returns what a child process says that it stored before it was killed.
func killedWriter(t *testing.T, p Place) []string {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program)
	cmd.Env = append(append(os.Environ(), p.Env...), locationVariable+"="+p.Location)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	output, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var ids []string
	for lines := bufio.NewReader(output); ; {
		line, err := lines.ReadString('\n')
		if err == io.EOF { // a line that was not ended is not an acknowledgement
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if ids = append(ids, strings.TrimSpace(line)); len(ids) == acknowledged {
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	_ = cmd.Wait() // it was killed
	if len(ids) < acknowledged {
		t.Fatalf("the child stored %d entries, and ended: %s", len(ids), stderr.String())
	}
	return ids
}
