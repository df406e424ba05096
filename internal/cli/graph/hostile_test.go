package graph

import (
	"errors"
	"io"
	"testing"

	"github.com/gleaner-dev/gleaner/internal/cli/printer/printertest"
)

func TestHostileReport_IsEscaped(t *testing.T) {
	o := printertest.Filled[ownership]()
	printertest.CheckReport(t, func(out io.Writer) error {
		return errors.Join(writeOwnership(out, &o, true), writeMermaid(out, &o), writeSVG(out, &o))
	})
}
