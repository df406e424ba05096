package archive

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"sync/atomic"
	"time"
)

// idLength is the length of an ID: 64 bits of time, 32 of a counter and 32 that are random,
// in hexadecimal.
const idLength = 32

// sequence orders the IDs of a process that have the same time.
var sequence atomic.Uint32

// newID returns an ID whose order is that of time.
func newID(t time.Time) (string, error) {
	prefix, err := idTime(t)
	if err != nil {
		return "", err
	}
	var id [idLength / 2]byte
	binary.BigEndian.PutUint64(id[:], prefix)
	binary.BigEndian.PutUint32(id[8:], sequence.Add(1))
	_, _ = rand.Read(id[12:]) // never fails
	return hex.EncodeToString(id[:]), nil
}

var (
	firstTime = time.Unix(0, 0)
	lastTime  = time.Unix(0, math.MaxInt64)
)

// idTime returns the part of an ID that is its time.
func idTime(t time.Time) (uint64, error) {
	if !t.After(firstTime) || t.After(lastTime) {
		return 0, fmt.Errorf("time %s is not between 1970 and 2262", t.Format(time.RFC3339))
	}
	return uint64(t.UnixNano()), nil
}

// IDPrefix returns what the IDs of a time begin with, for seeking in ordered IDs. Times before
// all entries have the lowest prefix, and those after all the highest.
func IDPrefix(t time.Time) string {
	var prefix [8]byte
	switch {
	case t.After(lastTime):
		binary.BigEndian.PutUint64(prefix[:], math.MaxUint64)
	case t.After(firstTime):
		binary.BigEndian.PutUint64(prefix[:], uint64(t.UnixNano()))
	}
	return hex.EncodeToString(prefix[:])
}

// checkID reports whether an ID is well formed and has the time of its entry.
func checkID(id string, t time.Time) error {
	raw, err := hex.DecodeString(id)
	if err != nil || len(id) != idLength || hex.EncodeToString(raw) != id {
		return fmt.Errorf("ID %q is not %d hexadecimal digits", shorten(id), idLength)
	}
	if _, err := idTime(t); err != nil {
		return err
	}
	if IDPrefix(t) != id[:16] {
		return fmt.Errorf("ID %s is not of time %s", id, t.Format(time.RFC3339Nano))
	}
	return nil
}

// shorten keeps messages short, whatever they quote.
func shorten(s string) string {
	const limit = 64
	if len(s) <= limit {
		return s
	}
	return s[:limit] + "…"
}
