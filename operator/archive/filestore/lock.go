package filestore

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/gleaner-dev/gleaner/operator/archive"
)

// writer is who has a store open for writing.
type writer struct {
	Host  string    `json:"host"`
	PID   int       `json:"pid"`
	Since time.Time `json:"since"`
}

// inUse says who has a store open, as far as is known.
func inUse(dir string, reading bool) error {
	holder := "another process"
	var w writer
	if text, err := os.ReadFile(filepath.Join(dir, writerName)); err == nil && len(text) < 4096 && json.Unmarshal(text, &w) == nil {
		holder = fmt.Sprintf("process %d on host %q, since %s,", w.PID, w.Host, w.Since.Format(time.RFC3339))
	}
	if reading {
		return fmt.Errorf("%w: %s writes it: read it through the operator, or stop the operator first", archive.ErrInUse, holder)
	}
	return fmt.Errorf("%w: %s has it open: run one replica only, and end what reads the folder directly", archive.ErrReadOnly, holder)
}
