package demo

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/gleaner-dev/gleaner/internal/cli/dev"
)

func TestDemo_PrintsWhatItWaitsFor(t *testing.T) {
	var out bytes.Buffer
	d := &demoRun{Environment: &dev.Environment{Done: make(chan error, 1)}, out: &out, quietPeriod: time.Millisecond, onPoll: func() {}}
	err := d.until(t.Context(), func() error {
		if strings.Contains(out.String(), "  Waiting: the policy is not ready\n") {
			return nil
		}
		return errors.New("the policy is not ready")
	})
	if err != nil {
		t.Errorf("nothing was said: %v", err)
	}
	if demoQuietPeriod > 10*time.Second {
		t.Errorf("%s are too long", demoQuietPeriod)
	}
}
