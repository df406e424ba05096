package graph

import (
	"errors"
	"io"
	"testing"

	"github.com/gleaner-dev/gleaner/internal/cli/ownership"
	"github.com/gleaner-dev/gleaner/internal/cli/picture"
	"github.com/gleaner-dev/gleaner/internal/cli/printer/printertest"
)

func TestHostileReport_IsEscaped(t *testing.T) {
	o := printertest.Filled[ownership.Ownership]()
	printertest.CheckReport(t, func(out io.Writer) error {
		return errors.Join(writeOwnership(out, &o, true), writeMermaid(out, &o), picture.Write(out, &o))
	})
}
