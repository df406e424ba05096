package restore

import (
	"io"
	"testing"

	"github.com/gleaner-dev/gleaner/internal/cli/printer/printertest"
	"github.com/gleaner-dev/gleaner/operator/archive"
)

func TestHostileReport_IsEscaped(t *testing.T) {
	report := printertest.Filled[Report]()
	printertest.CheckReport(t, func(out io.Writer) error {
		report.printPlan(out)
		report.printResult(out, 2)
		return nil
	})
	former := printertest.Filled[[]archive.Header]()
	printertest.CheckReport(t, func(out io.Writer) error {
		(&Report{Notes: describeFormer(former)}).printPlan(out)
		return nil
	})
}
