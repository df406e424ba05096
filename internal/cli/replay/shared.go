package replay

import (
	"context"
	"fmt"
	"strings"

	"github.com/gleaner-dev/gleaner/internal/cli/loader"
	"github.com/gleaner-dev/gleaner/internal/cli/records"
	"github.com/gleaner-dev/gleaner/operator/record"
	"github.com/gleaner-dev/gleaner/policies/wasm/sandbox"
)

// Text replays the only evaluation of a module in a record with the module in a file, and returns what gleaner replay prints. It has
// the usual limits of a call.
func Text(ctx context.Context, e record.Entry, file string) (string, error) {
	t, err := records.Only(e)
	if err != nil {
		return "", err
	}
	m, err := loader.Load(ctx, sandbox.Limits{Fuel: sandbox.DefaultFuel, Memory: sandbox.DefaultMemory, Timeout: sandbox.DefaultTimeout}, []string{file})
	if err != nil {
		return "", err
	}
	defer m.Close()
	digests, err := DigestsOf(m, []string{file})
	if err != nil {
		return "", err
	}
	var out strings.Builder
	r := replayer{module: m, digests: digests, out: &out, log: &out}
	if err := r.replay(ctx, t); err != nil {
		return "", err
	}
	if r.different == 0 {
		return out.String() + "The result is the recorded one.\n", nil
	}
	return out.String() + fmt.Sprintf("%d of %d rounds differ from the record.\n", r.different, r.rounds), nil
}
