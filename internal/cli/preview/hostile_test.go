package preview

import (
	"errors"
	"io"
	"testing"

	"github.com/gleaner-dev/gleaner/internal/cli/printer/printertest"
)

func TestHostileReport_IsEscaped(t *testing.T) {
	d := printertest.Filled[deletionPreview]()
	printertest.CheckReport(t, func(out io.Writer) error {
		return errors.Join(writePreview(out, &d, false), writePreview(out, &d, true))
	})
}
