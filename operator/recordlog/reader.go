package recordlog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/operator/archive"
	"github.com/gleaner-dev/gleaner/operator/record"
)

// Reader reads the decision records in an archive. Its methods may be called concurrently.
type Reader struct{ Archive archive.Reader }

// Entries calls yield for the entries of a period, oldest first, until that returns false. An empty
// uid means all objects; zero times mean no limit. Entries that are corrupt are skipped, and the
// error at the end is archive.ErrCorrupt.
func (r Reader) Entries(ctx context.Context, uid types.UID, since, before time.Time, yield func(record.Entry) bool) error {
	unreadable := 0
	err := r.Archive.Records(ctx, uid, since, before, func(stored archive.Record) bool {
		var e record.Entry
		if json.Unmarshal(stored.JSON, &e) != nil {
			unreadable++
			return ctx.Err() == nil
		}
		return yield(e) && ctx.Err() == nil
	})
	if err == nil && unreadable > 0 {
		return fmt.Errorf("read records: %d of them: %w", unreadable, archive.ErrCorrupt)
	}
	return errors.Join(err, ctx.Err())
}
