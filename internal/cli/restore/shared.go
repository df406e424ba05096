package restore

import (
	"context"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/gleaner-dev/gleaner/internal/cli/entries"
	"github.com/gleaner-dev/gleaner/internal/cli/kubectl"
)

// Object restores a deleted object and everything below it, as gleaner restore --uid does, and returns what that prints. With dryRun,
// the API server checks each object, and nothing is stored. The text is complete also if there is an error, such as that of conflicts.
func Object(ctx context.Context, config *rest.Config, from *entries.Flags, uid types.UID, dryRun bool) (string, error) {
	o := &options{Flags: kubectl.NewFlags(), archive: *from, dryRun: dryRunNone, yes: true}
	if dryRun {
		o.dryRun = dryRunServer
	}
	var out strings.Builder
	r := &run{options: o, in: strings.NewReader(""), out: &out, errOut: &out}
	err := r.restoreTo(ctx, config, selection{uid: uid})
	return out.String(), err
}
